"""A stage packed, run by a Python without the project's packages, and its results taken back."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_repository import dvc, git

from pipeline.bundles import archive, collecting, packing, running
from pipeline.bundles.archive import BundleError, ChangedError
from pipeline.bundles.checkpoints import About, about_checkpoint
from pipeline.bundles.collecting import _take, collect, stale_inputs
from pipeline.bundles.contents import Contents, _tests_on_affnist, stage_contents
from pipeline.bundles.packing import pack, unpack
from pipeline.bundles.running import read_results, run
from pipeline.dependencies import Graph, GraphError
from pipeline.errors import UserError
from pipeline.files import FileWriteError, read_yaml
from pipeline.locks import AlreadyRunningError, lock_path, single_instance

REPOSITORY = Path(__file__).parents[2]
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The Python that the environment of the tests is made from: it has none of the project's packages."""


def bare(folder: Path, **environment: str) -> subprocess.Popen[str]:
    """`python run.py` in another folder, by a Python without packages and with an empty environment."""
    python = BARE if BARE.exists() else Path(sys.executable)
    env = {"PATH": os.defpath, "HOME": str(folder), **environment}
    command = [str(python), "-I", str(folder / "run.py")]
    return subprocess.Popen(
        command, cwd=folder.parent, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def untar(bundle: Path, folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["tar", "xf", str(bundle), "-C", str(folder)], check=True)
    return folder


def packed_and_run(root: Path, tmp_path: Path, *stages: str) -> Path:
    """The results of stages, run in this process's Python."""
    pack(root, stages, tmp_path / "bundle.tar")
    unpack(tmp_path / "bundle.tar", tmp_path / "there")
    return run(tmp_path / "there")


def state(root: Path) -> dict[str, bytes]:
    """Every file that a collection may change."""
    places = [root / name for name in ("models", "reports", "totals", ".tracking", "dvc.lock")]
    files = [file for place in places for file in (place.rglob("*") if place.is_dir() else [place]) if file.is_file()]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize(("failures", "packed"), [(2, True), (3, False)])
def test_a_bundle_whose_checkpoint_changes_meanwhile_is_packed_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, packed: bool
) -> None:
    """As that of a stage which still runs on a machine that cannot be reached."""
    tries = []

    def write(*arguments: Any) -> None:
        tries.append(arguments)
        if len(tries) <= failures:
            raise ChangedError("the checkpoint changed while it was packed")
        archive.write(*arguments)

    monkeypatch.setattr(packing, "write", write)
    with nullcontext() if packed else pytest.raises(ChangedError):
        pack(root, "train@a", tmp_path / "bundle.tar")
    assert len(tries) == 3
    assert (tmp_path / "bundle.tar").exists() == packed


# ---- there and back


def test_a_bundle_runs_without_packages_and_its_results_are_as_if_dvc_had_run_it(root: Path, tmp_path: Path) -> None:
    commit = git(root, "rev-parse", "HEAD").strip()
    contents = pack(root, "train@a", tmp_path / "bundle.tar")
    there = untar(tmp_path / "bundle.tar", tmp_path / "there")
    process = bare(there)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "python -m pipeline collect results.tar" in said
    results = collect(root, there / "results.tar")
    assert results.contents == contents
    assert (results.exit_code, results.failed, results.python.split(".")[0]) == (0, None, "3")
    assert (root / "models/a/weights.txt").read_text() == (root / "models/a/copy.txt").read_text() == "2 4 6"
    (journal,) = (root / ".tracking").glob("*/events.jsonl")
    assert json.loads(journal.read_text())["commit"] == commit
    assert dvc(root, "status", "train@a").strip() == "Data and pipelines are up to date."
    assert "Running" not in dvc(root, "repro", "train@a")

    # DVC's run cache knows it: after a change and back, nothing is run again.
    params = root / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("factor: 2", "factor: 5"))
    assert "Running" in dvc(root, "repro", "train@a")
    assert (root / "models/a/weights.txt").read_text() == "5 10 15"
    params.write_text(before)
    assert "is cached - skipping run" in dvc(root, "repro", "train@a")
    assert (root / "models/a/weights.txt").read_text() == "2 4 6"


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("-h", 0), ("train", 2)])
def test_asked_for_help_a_bundle_runs_nothing(argument: str, code: int, tmp_path: Path) -> None:
    start = Path(running.__file__).with_name("start.py")
    command = [sys.executable, str(start), argument]
    environment = {**os.environ, "PYTHONPATH": str(start.parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Run this bundle" in done.stdout
    assert not (start.parent / "results.tar").exists()


def test_a_folder_that_cannot_be_written_is_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack(root, "train@a", tmp_path / "bundle.tar")
    unpack(tmp_path / "bundle.tar", tmp_path / "there")
    (tmp_path / "there/log.txt").mkdir()  # as root, tests can write into read-only folders
    assert running.main(str(tmp_path / "there")) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/there/log.txt: Is a directory\n"


def test_stages_that_depend_on_each_other_travel_together(root: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="models/a is missing: run `dvc repro train@a` first, or add"):
        stage_contents(root, "total@a")
    results = packed_and_run(root, tmp_path, "train@a", "total@a")
    collect(root, results)
    assert (root / "totals/a.txt").read_text() == "12"
    assert (root / "totals/a-parts").is_dir(), "an empty folder is an output, too"
    assert dvc(root, "status", "total@a").strip() == "Data and pipelines are up to date."
    alone = stage_contents(root, "total@a")
    assert alone.folders == ("models/a", "data/folder")
    weights, data = {"models/a/weights.txt", "models/a/copy.txt"}, {"data/numbers.txt", "data/folder/more.txt"}
    assert alone.inputs.keys() == weights | data, "what works on weights reads the data, too"
    assert "stages/train.py" not in alone.code, "the weights stand for what made them"


def test_uncommitted_code_is_recorded_as_such(root: Path, tmp_path: Path) -> None:
    (root / "pipeline/numbers.py").write_text((root / "pipeline/numbers.py").read_text() + "# changed\n")
    assert stage_contents(root, "train@a").dirty
    packed_and_run(root, tmp_path, "train@a")
    (journal,) = (tmp_path / "there/.tracking").glob("*/events.jsonl")
    assert json.loads(journal.read_text())["commit"] == git(root, "rev-parse", "HEAD").strip() + "-dirty"


def test_the_key_changes_with_everything_that_is_packed(root: Path) -> None:
    keys = {stage_contents(root, "train@a").key}
    changes = ("pipeline/numbers.py", "stages/unused.py", "data/folder/more.txt", "params.yaml")
    for count, name in enumerate(changes, 2):
        (root / name).write_text((root / name).read_text() + "\n")
        keys.add(stage_contents(root, "train@a").key)
        assert len(keys) == count, name
    assert stage_contents(root, "train@slow").key not in keys


def test_stages_that_cannot_be_packed_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="no stage train@nobody"):
        pack(root, "train@nobody", tmp_path / "bundle.tar")
    with pytest.raises(BundleError, match="draw keeps files of earlier runs"):
        pack(root, "draw", tmp_path / "bundle.tar")
    (root / "data/folder/more.txt").unlink()
    (root / "data/folder").rmdir()
    with pytest.raises(BundleError, match="data/folder is missing"):
        pack(root, "train@a", tmp_path / "bundle.tar")
    assert not (tmp_path / "bundle.tar").exists()


def test_inputs_that_dvc_would_make_again_are_named(root: Path, tmp_path: Path) -> None:
    collect(root, packed_and_run(root, tmp_path, "train@a"))
    assert stale_inputs(root, ["total@a"]) == []
    params = root / "params.yaml"
    params.write_text(params.read_text().replace("factor: 2", "factor: 5"))
    assert stale_inputs(root, ["total@a"]) == ["train@a"]
    assert stale_inputs(root, ["train@a", "total@a"]) == []
    params.write_text(params.read_text().replace("factor: 5", "factor: 2"))
    shutil.rmtree(root / ".dvc/cache")
    shutil.rmtree(root / "models/a")
    assert stale_inputs(root, ["total@a"]) == [], "what is missing is named when it is packed"


def test_a_full_disk_leaves_no_half_bundle(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_write_member", full)
    with pytest.raises(FileWriteError, match="the disk is full"):
        pack(root, "train@a", tmp_path / "bundle.tar")
    assert not [path for path in tmp_path.iterdir() if "bundle" in path.name]


# ---- the other machine


def test_packages_that_are_missing_are_named_before_anything_runs(root: Path, tmp_path: Path) -> None:
    text = (root / "stages/train.py").read_text()
    (root / "stages/train.py").write_text(f"def never() -> None:\n    import pyro\n\n\n{text}")
    pack(root, "train@a", tmp_path / "bundle.tar")
    process = bare(untar(tmp_path / "bundle.tar", tmp_path / "there"))
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "lacks pyro-ppl==" in said
    assert "--wheels" in said
    assert not (tmp_path / "there/models").exists()


def test_wheels_are_installed_where_the_machine_lacks_them(root: Path, tmp_path: Path) -> None:
    import zipfile

    text = (root / "stages/train.py").read_text()
    (root / "stages/train.py").write_text(text.replace("import json,", "import ours_only\nimport json,"))
    pack(root, "train@a", tmp_path / "bundle.tar")
    there = untar(tmp_path / "bundle.tar", tmp_path / "there")
    (there / "wheels").mkdir()
    about = "ours_only-1.0.dist-info"
    with zipfile.ZipFile(there / "wheels/ours_only-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("ours_only.py", "")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: ours-only\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", f"ours_only.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    assert read_results(run(there)).exit_code == 0
    assert (there / "packages/ours_only.py").exists()
    made = (there / "packages/ours_only.py").stat().st_mtime_ns
    run(there)
    assert (there / "packages/ours_only.py").stat().st_mtime_ns == made, "installed once"


def test_nothing_of_the_caller_reaches_the_stage(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may itself be a process of `dvc repro`, with another copy of the library on its path."""
    monkeypatch.setenv("DVC_ROOT", str(root))
    monkeypatch.setenv("DVC_STAGE", "train@x")
    (tmp_path / "other/pipeline").mkdir(parents=True)
    (tmp_path / "other/pipeline/__init__.py").write_text("raise SystemExit('the wrong library')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    (root / "stages/train.py").write_text(
        "import os\nassert not [key for key in os.environ if key.startswith('DVC_')]\n"
        "assert os.environ['CAPSULES_MLFLOW'] == 'off'\n" + (root / "stages/train.py").read_text()
    )
    monkeypatch.setenv("CAPSULES_MLFLOW", "on")
    assert read_results(packed_and_run(root, tmp_path, "train@a")).failed is None


def test_a_bundle_that_was_changed_does_not_run(root: Path, tmp_path: Path) -> None:
    pack(root, "train@a", tmp_path / "bundle.tar")
    there = untar(tmp_path / "bundle.tar", tmp_path / "there")
    (there / "data/numbers.txt").write_text("1 2 4")
    with pytest.raises(BundleError, match=r"data/numbers.txt is not what was packed"):
        run(there)
    (there / "data/numbers.txt").unlink()
    with pytest.raises(BundleError, match=r"data/numbers.txt is missing"):
        run(there)
    with pytest.raises(BundleError, match="is not an unpacked bundle"):
        run(tmp_path)


def test_a_bundle_whose_contents_do_not_fit_is_not_unpacked(root: Path, tmp_path: Path) -> None:
    pack(root, "train@a", tmp_path / "bundle.tar")
    manifest = archive.extract(tmp_path / "bundle.tar", "bundle", tmp_path / "files")
    listed = {name: tmp_path / "files" / name for name in manifest["files"]}
    about = {key: value for key, value in manifest.items() if key not in ("files", "kind")}
    for changes, said in (
        ({"key": "0" * 64}, "do not match its key"),
        ({"contents": {**about["contents"], "folders": ["../outside"]}}, "is not the name of a file inside"),
        ({"contents": {**about["contents"], "steps": [{}]}}, "does not say what it holds"),
    ):
        archive.write(tmp_path / "bad.tar", "bundle", {**about, **changes}, listed)
        with pytest.raises(BundleError, match=said):
            unpack(tmp_path / "bad.tar", tmp_path / "there")
    archive.write(tmp_path / "bad.tar", "bundle", about, {**listed, "data/numbers.txt": listed["run.py"]})
    with pytest.raises(BundleError, match=r"contents name another data/numbers\.txt"):
        unpack(tmp_path / "bad.tar", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_stage_without_its_outputs_has_failed(root: Path, tmp_path: Path) -> None:
    (root / "stages/train.py").write_text("print('made nothing')\n")
    path = packed_and_run(root, tmp_path, "train@a", "total@a")
    results = read_results(path)
    assert (results.exit_code, results.failed, results.stopped) == (1, "train@a", False)
    with pytest.raises(BundleError, match=r"(?s)train@a ended with exit code 1 .*made nothing.*did not make models/a"):
        collect(root, path)
    assert state(root) == {}


def test_results_of_the_stages_before_one_that_failed_are_kept(root: Path, tmp_path: Path) -> None:
    (root / "stages/total.py").write_text("raise SystemExit('no total')\n")
    path = packed_and_run(root, tmp_path, "train@a", "total@a")
    assert read_results(path).done == ("train@a",)
    with pytest.raises(BundleError, match=r"(?s)total@a ended with exit code 1 .*train@a ended well.*no total"):
        collect(root, path)
    assert dvc(root, "status", "train@a").strip() == "Data and pipelines are up to date."
    assert not (root / "totals").exists()


# ---- stopped


def stop_when_waiting(folder: Path, stop: Callable[[], object]) -> None:
    """Call `stop` once the stage has written its checkpoint."""
    deadline = time.monotonic() + 30
    while b"waiting" not in ((folder / "log.txt").read_bytes() if (folder / "log.txt").exists() else b""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_goes_on_elsewhere_from_its_checkpoint(
    root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    pack(root, "train@slow", tmp_path / "bundle.tar")
    there = untar(tmp_path / "bundle.tar", tmp_path / "there")
    process = bare(there)
    stop_when_waiting(there, lambda: process.send_signal(number))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM, said
    results = read_results(there / "results.tar")
    assert results.stopped
    assert results.made == {}
    with pytest.raises(BundleError, match="train@slow was stopped"):
        collect(root, there / "results.tar")
    assert (root / ".cache/resume/fingerprint/checkpoint.safetensors").exists()
    assert not (root / "models").exists()

    pack(root, "train@slow", tmp_path / "again.tar")
    unpack(tmp_path / "again.tar", tmp_path / "elsewhere")
    collect(root, run(tmp_path / "elsewhere"))
    assert "going on from a checkpoint" in (tmp_path / "elsewhere/log.txt").read_text()
    assert (root / "models/slow/weights.txt").read_text() == "3 6 9"
    (journal,) = (root / ".tracking").glob("*/events.jsonl")
    assert len(journal.read_text().splitlines()) == 2, "the run went on"

    def checkpoints(stage: str) -> list[str]:
        pack(root, stage, tmp_path / "other.tar")
        return [name for name in archive.read_manifest(tmp_path / "other.tar", "bundle")["files"] if "resume" in name]

    assert checkpoints("train@slow") == [".cache/resume/fingerprint/checkpoint.safetensors"]
    assert checkpoints("train@a") == [], "that of another stage"
    with journal.open("a") as file:
        file.write('{"event": "end", "status": "FINISHED"}\n')
    assert checkpoints("train@slow") == [], "nothing is left to train"


def checkpoint(path: Path, epoch: int) -> bytes:
    header = json.dumps({"__metadata__": {"capsules": json.dumps({"tracked_run": "a", "state": {"epoch": epoch}})}})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    return path.read_bytes()


def test_a_checkpoint_is_not_replaced_by_one_of_an_earlier_epoch(tmp_path: Path) -> None:
    place = ".cache/resume/fingerprint/checkpoint.safetensors"
    here, collected = tmp_path / "here" / place, tmp_path / "collected" / place
    later = checkpoint(here, 20)
    checkpoint(collected, 12)
    _take(tmp_path / "collected", tmp_path / "here", ".cache/resume")
    assert here.read_bytes() == later
    latest = checkpoint(collected, 21)
    _take(tmp_path / "collected", tmp_path / "here", ".cache/resume")
    assert here.read_bytes() == latest
    here.write_bytes(b"damaged")
    assert about_checkpoint(here) == About("", -1)


def test_an_evaluation_on_affnist_takes_its_test_set_along() -> None:
    graph, values = Graph.load(REPOSITORY), read_yaml(REPOSITORY / "params.yaml")
    item = graph.item("evaluate", "vae-digits")
    assert not _tests_on_affnist(item, values)
    values["evaluate"]["official_affnist"] = True
    assert not _tests_on_affnist(item, values), "affNIST's images are larger"
    values["datasets"]["digits"]["canvas"] = 40
    assert _tests_on_affnist(item, values)
    assert not _tests_on_affnist(graph.item("train", "vae-digits"), values)


def test_a_thread_can_stop_a_run(root: Path, tmp_path: Path) -> None:
    pack(root, "train@slow", tmp_path / "bundle.tar")
    unpack(tmp_path / "bundle.tar", tmp_path / "there")
    stop = threading.Event()
    found: list[Path] = []
    thread = threading.Thread(target=lambda: found.append(run(tmp_path / "there", stop)))
    thread.start()
    stop_when_waiting(tmp_path / "there", stop.set)
    thread.join(timeout=30)
    assert read_results(found[0]).stopped


def test_a_stage_ends_with_the_process_that_wants_its_results(root: Path, tmp_path: Path) -> None:
    pack(root, "train@slow", tmp_path / "bundle.tar")
    there = untar(tmp_path / "bundle.tar", tmp_path / "there")
    process = bare(there)
    stop_when_waiting(there, process.kill)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while alive := [each.pid for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(there)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)


# ---- what collect refuses


def edited(path: Path, change: Callable[[dict[str, Any]], None], target: Path, drop: str = "") -> Path:
    """A copy of results whose manifest was changed, with the files that it names."""
    folder = target.with_suffix(".files")
    manifest = archive.extract(path, "results", folder)
    change(manifest)
    files = {name: folder / name for name in manifest.pop("files") if name != drop}
    kind = manifest.pop("kind")
    archive.write(target, kind, manifest, files)
    return target


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("pipeline/numbers.py", "factor", "other", "pipeline/numbers.py changed"),
        ("stages/train.py", "Multiplies", "Changes", "stages/train.py changed"),
        ("data/numbers.txt", "1 2 3", "1 2 4", "data/numbers.txt changed"),
        ("params.yaml", "factor: 2", "factor: 5", r"items\.a\.factor \(2, now 5\) in params.yaml changed"),
        ("params.yaml", "{first: 1}}\n  slow", "{last: 1}}\n  slow", r"items\.a\.epochs\.first \(1, now not there\)"),
        ("dvc.yaml", "-m stages.train", "-O -m stages.train", "the command of train@a changed"),
        ("stages/unused.py", "nothing", "something", ""),
        ("params.yaml", "other: 1", "other: 2", ""),
        ("params.yaml", "factor: 3", "factor: 4", ""),
    ],
)
def test_results_of_other_code_parameters_or_inputs_are_refused_by_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, said: str
) -> None:
    monkeypatch.setattr(collecting, "record", lambda *_: None)
    path = packed_and_run(root, tmp_path, "train@a")
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new, 1))
    if not said:
        collect(root, path)
        assert (root / "models/a/weights.txt").exists()
        return
    with pytest.raises(BundleError, match=said) as caught:
        collect(root, path)
    assert caught.value.args[0].count("changed") == 1, "only what changed is named"
    assert state(root) == {}


def test_a_new_input_is_noticed(root: Path, tmp_path: Path) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    (root / "data/folder/new.txt").write_text("new")
    with pytest.raises(BundleError, match=r"data/folder/new\.txt changed"):
        collect(root, path)


def test_outputs_must_be_exactly_those_of_the_stage(root: Path, tmp_path: Path) -> None:
    path = packed_and_run(root, tmp_path, "train@a")

    def rename(contents: dict[str, Any]) -> None:
        contents["steps"][0]["stage"] = "train@slow"
        contents["steps"][0]["command"] = "python -m stages.train slow"

    def another_stage(manifest: dict[str, Any]) -> None:
        rename(manifest["contents"])
        manifest["key"] = Contents.from_json(manifest["contents"], "").key

    def lacking(manifest: dict[str, Any]) -> None:
        del manifest["made"]["reports/a.json"]

    wrong = {
        "wrong-key": (lambda manifest: manifest.update(key="0" * 64), "do not match its key", ""),
        "other-contents": (lambda manifest: rename(manifest["contents"]), "do not match its key", ""),
        "another-stage": (another_stage, r"items\.slow\.factor", ""),
        "lacking": (lacking, "holds reports/a.json, which is no output", ""),
        "missing": (lacking, "has not the outputs of train@a", "reports/a.json"),
        "file-lost": (lambda _: None, "lacks reports/a.json", "reports/a.json"),
        "more": (lambda manifest: manifest["made"].update({"params.yaml": "file"}), "lacks params.yaml", ""),
        "folder": (lambda manifest: manifest["made"].update({"models/a": "file"}), "both a file and a folder", ""),
        "stage-that-is-gone": (
            lambda manifest: (
                manifest["contents"]["steps"][0].update(stage="train@gone"),
                manifest.update(key=Contents.from_json(manifest["contents"], "").key),
            ),
            "no stage train@gone",
            "",
        ),
        "no-contents": (lambda manifest: manifest.pop("contents"), "does not say what it holds", ""),
        "no-code": (lambda manifest: manifest.pop("exit_code"), "does not say what happened", ""),
    }
    for name, (change, said, drop) in wrong.items():
        with pytest.raises(UserError, match=said):
            collect(root, edited(path, change, tmp_path / f"{name}.tar", drop))  # type: ignore[arg-type]
        assert state(root) == {}, name


def test_results_never_land_elsewhere(root: Path, tmp_path: Path) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    folder = tmp_path / "files"
    manifest = archive.extract(path, "results", folder)
    for name in ("params.yaml", ".git/hooks/pre-commit", "models/b/weights.txt", "modelsa", ".cache/other"):
        files = {each: folder / each for each in manifest["files"]} | {name: folder / "log.txt"}
        about = {key: value for key, value in manifest.items() if key not in ("files", "kind")}
        archive.write(tmp_path / "more.tar", "results", about, files)
        with pytest.raises(BundleError, match=f"holds {name}, which is no output"):
            collect(root, tmp_path / "more.tar")


def test_a_bundle_is_no_result_and_the_other_way_round(root: Path, tmp_path: Path) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    with pytest.raises(BundleError, match="is not a results file, but 'bundle'"):
        collect(root, tmp_path / "bundle.tar")
    with pytest.raises(BundleError, match="is not a bundle file, but 'results'"):
        unpack(path, tmp_path / "new")


def test_nothing_is_collected_while_the_stage_runs_here(root: Path, tmp_path: Path) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    with single_instance(lock_path(root, "train@a"), "train@a"), pytest.raises(AlreadyRunningError, match="train@a"):
        collect(root, path)
    assert state(root) == {}


def test_a_failed_stage_leaves_no_record_while_it_runs_here_or_is_unknown(root: Path, tmp_path: Path) -> None:
    (root / "stages/train.py").write_text("raise SystemExit('no weights')\n")
    path = packed_and_run(root, tmp_path, "train@a")
    with single_instance(lock_path(root, "train@a"), "train@a"), pytest.raises(AlreadyRunningError, match="train@a"):
        collect(root, path)

    def elsewhere(manifest: dict[str, Any]) -> None:
        manifest["failed"] = manifest["contents"]["steps"][0]["stage"] = "../../precious"
        manifest["key"] = Contents.from_json(manifest["contents"], "").key

    (root / "precious.lock").write_text("mine")
    with pytest.raises(GraphError, match="precious"):
        collect(root, edited(path, elsewhere, tmp_path / "elsewhere.tar"))
    assert (root / "precious.lock").read_text() == "mine"
    assert state(root) == {}


def test_earlier_outputs_come_back_after_ctrl_c(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    (root / "models/a").mkdir(parents=True)
    (root / "models/a/old.txt").write_text("old")
    before = state(root)
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if Path(target) == root / "reports/a.json":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect(root, path)
    assert state(root) == before


def test_earlier_outputs_stay_until_all_new_ones_are_in_place(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    monkeypatch.setattr(collecting, "record", lambda *_: None)
    kept = tmp_path / "cache.json"
    kept.write_text("a file of DVC's cache")
    (root / "models/a").mkdir(parents=True)
    (root / "models/a/old.txt").write_text("old")
    (root / "reports").mkdir()
    (root / "reports/a.json").symlink_to(kept)
    before = state(root)
    rename = Path.rename

    def fails_at_the_second(self: Path, target: Path) -> Path:
        if Path(target) == root / "reports/a.json" and not self.is_symlink():
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_at_the_second)
    with pytest.raises(FileWriteError, match="No space left"):
        collect(root, path)
    assert state(root) == before
    assert (root / "reports/a.json").is_symlink()
    monkeypatch.setattr(Path, "rename", rename)
    collect(root, path)
    assert not (root / "models/a/old.txt").exists()
    assert kept.read_text() == "a file of DVC's cache"
    assert not list((root / ".cache").glob("collect-*"))


def test_outputs_may_lie_on_another_disk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    monkeypatch.setattr(collecting, "record", lambda *_: None)
    (root / "models/a").mkdir(parents=True)
    (root / "models/a/old.txt").write_text("old")
    rename = os.rename

    def between_disks(source: Any, target: Any, **options: Any) -> None:
        if (root / "models" in Path(source).parents) != (root / "models" in Path(target).parents):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", between_disks)
    collect(root, path)
    assert sorted(each.name for each in (root / "models/a").iterdir()) == ["copy.txt", "weights.txt"]
    assert [each.name for each in (root / "models").iterdir()] == ["a"]


def test_dvcs_refusal_is_reported(root: Path, tmp_path: Path) -> None:
    path = packed_and_run(root, tmp_path, "train@a")
    shutil.rmtree(root / ".dvc")
    with pytest.raises(BundleError, match=r"DVC has not recorded them: .*dvc commit --force train@a"):
        collect(root, path)


def test_a_journal_is_never_replaced_by_a_shorter_one(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(collecting, "record", lambda *_: None)
    path = packed_and_run(root, tmp_path, "train@a")
    collect(root, path)
    (journal,) = (root / ".tracking").glob("*/events.jsonl")
    longer = journal.read_text() + '{"event": "end"}\n'
    journal.write_text(longer)
    collect(root, path)
    assert journal.read_text() == longer


def test_long_logs_keep_their_end(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"x" * (2 << 20) + b"the end")
    running._shorten(path)
    assert path.stat().st_size == 1 << 20
    assert path.read_bytes().endswith(b"the end")
