"""The way to a borrowed GPU machine and back, with everything heavy left out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import gpu_queue  # noqa: E402
import gpu_there  # noqa: E402

RECORD = {"commit": "unknown", "dirty": True, "seeds": [0, 1]}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working tree's copy with a packed folder, as it arrives over there."""
    folder = tmp_path / "there"
    for name in ("pipeline", "stages"):
        (folder / name).mkdir(parents=True)
        (folder / name / "code.py").write_text("x = 1\n")
    (folder / "dvc.yaml").write_text("stages: {}\n")
    for name in ("params.yaml", "profiles/paper-gpu/params.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        profile = "paper-gpu" if "paper" in name else "quick"
        (folder / name).write_text(f"# about\nprofile: {profile}\n")
    about = {"commit": "abc", "dirty": False, "code": gpu_there.code_hash(folder)}
    (folder / ".gpu" / "data").mkdir(parents=True)
    (folder / ".gpu" / "pack.json").write_text(json.dumps(about))
    (folder / ".gpu" / "data" / "mnist.npz").write_bytes(b"digits")
    monkeypatch.chdir(folder)
    return folder


def results_of(tree: Path) -> None:
    """What a training leaves behind."""
    for name, content in {
        "reports/paper-gpu/results/evaluate/a.json": json.dumps({"test": 0.5, "record": [{"provenance": [RECORD]}]}),
        "reports/paper-gpu/results/evaluate/a.csv": "test,accuracy\n",
        "models/a/weights.safetensors": "weights",
        ".tracking/run/events.jsonl": json.dumps({"event": "start", "tags": {"commit": "unknown"}}) + "\nrest\n",
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)


def test_every_command_is_short_enough_and_every_entry_is_on_the_page() -> None:
    entries = gpu_queue.queue(gpu_queue.paper_params())
    assert len({entry.name for entry in entries}) == len(entries)
    assert all(len(gpu_queue.command(entry)) <= 2000 for entry in entries)
    page = (ROOT / "scripts" / "gpu_queue.md").read_text()
    assert page == gpu_queue.page(entries), "python scripts/gpu_queue.py page"
    for entry in entries:
        name = entry.name if not entry.name.startswith("sweep-") else f"{entry.name.rpartition('-')[0]}-ANGLE"
        assert f"| {name} |" in page


STUDIES = (
    "optimise", "posterior", "presence_ablation", "equivariance", "data_efficiency", "infer",
    "ablation", "recipe", "viewpoint", "attack",
)  # fmt: skip


def test_everything_that_is_heavy_is_queued_after_what_it_starts_from() -> None:
    params = gpu_queue.paper_params()
    names = [entry.name for entry in gpu_queue.queue(params)]
    asked = {f"{stage}-{item}" for stage in ("train", "evaluate") for item in params["runs"]}
    asked |= {f"{stage}-{item}" for stage in STUDIES for item in params[stage]}
    asked |= {f"sweep-{run}-{angle:g}" for run in params["sweep"]["runs"] for angle in params["sweep"]["angles"]}
    asked |= {f"sensitivity-{name}" for name in params["sensitivity"]["hyperparameters"]}
    benchmarks = {"benchmark", "benchmark-capsnet", "benchmark-free-form", "benchmark-matrix-capsules"}
    assert set(names) == asked | {"gpu-tests"} | benchmarks
    for entry in gpu_queue.queue(params):
        for needed in entry.needs:
            assert names.index(needed) < names.index(entry.name)


def test_commands_records_and_what_is_needed_are_those_of_the_pipeline() -> None:
    entries = {entry.name: entry for entry in gpu_queue.queue(gpu_queue.paper_params())}
    attack, sweep = entries["attack-smallnorb"], entries["sweep-vae-mnist-45"]
    assert attack.commands == ["python3 -m stages.attack smallnorb"]
    assert attack.needs == ("train-matrix-small-smallnorb", "train-cnn-smallnorb")
    assert sweep.commands == ["python3 -m stages.sweep vae-mnist 45"]
    assert sweep.results == {"reports/paper-gpu/results/sweep/vae-mnist-45.json": 5}
    assert entries["train-vae-mnist"].needs == ()
    stages = [entry for entry in entries.values() if entry.commands[0].startswith("python3 -m stages.")]
    assert all(len(entry.results) == 1 for entry in stages)


def test_what_does_not_belong_among_results_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "came"
    folder.mkdir()
    (folder / "pack.json").write_text(json.dumps({"commit": "abc", "dirty": False, "code": ""}))
    (tmp_path / "x").write_text("x")
    with tarfile.open(folder / "results.tar.gz.00", "w:gz") as archive:
        archive.add(tmp_path / "x", "reports/paper-gpu/index.html")
    with pytest.raises(gpu_queue.QueueError, match="does not belong among results"):
        gpu_queue.collect(folder, tmp_path / "here")


def test_the_queue_goes_from_the_capsules_to_what_they_are_compared_with_and_beyond() -> None:
    names = [entry.name for entry in gpu_queue.queue(gpu_queue.paper_params())]
    order = [
        "gpu-tests", "benchmark", "evaluate-capsules-mnist", "sweep-capsules-mnist-0", "optimise-capsules-mnist",
        "train-cnn-smallnorb", "train-matrix-smallnorb", "viewpoint-azimuth", "attack-smallnorb", "ablation-smallnorb",
        "train-capsnet-unrouted-mnist", "infer-capsnet-unrouted-mnist",
        "train-vae-mnist", "sweep-vae-mnist-180", "train-scae-mnist", "sweep-scae-mnist-180",
        "posterior-capsules-mnist", "sensitivity-temperature", "train-capsules-mnist-slots",
    ]  # fmt: skip
    assert [name for name in names if name in order] == order


def test_minutes_of_an_optimisation_count_every_engine_and_the_refit() -> None:
    params = gpu_queue.paper_params()
    settings = params["optimise"]["capsules-mnist"]
    before = gpu_queue.optimisation(params, "capsules-mnist").minutes
    settings["engines"]["gauss-newton"]["steps"] *= 2
    twice = gpu_queue.optimisation(params, "capsules-mnist").minutes
    settings["refit_images"] = 0
    assert twice > before
    assert gpu_queue.optimisation(params, "capsules-mnist").minutes < twice


def test_unpacking_lays_out_a_tree_with_the_paper_parameters_and_data(copy: Path, capsys) -> None:
    gpu_there.unpack(Path(".gpu"))
    tree = copy / gpu_there.TREE
    assert capsys.readouterr().out.strip() == str(copy / gpu_there.WORK / "site")
    assert "profile: paper-gpu" in (tree / "params.yaml").read_text()
    assert (tree / "data" / "processed" / "mnist.npz").read_bytes() == b"digits"


def test_the_paper_parameters_are_taken_where_they_are_the_current_ones(copy: Path) -> None:
    (copy / "profiles" / "paper-gpu" / "params.yaml").replace(copy / "params.yaml")
    gpu_there.unpack(Path(".gpu"))
    assert "profile: paper-gpu" in (copy / gpu_there.TREE / "params.yaml").read_text()


@pytest.mark.parametrize("name", ["stages/code.py", "pipeline/code.py", "dvc.yaml"])
def test_code_other_than_what_was_packed_is_refused(copy: Path, name: str) -> None:
    (copy / name).write_text("x = 2\n")
    with pytest.raises(SystemExit, match="pack again"):
        gpu_there.unpack(Path(".gpu"))


def test_results_come_back_in_pieces_with_the_commit_that_was_packed(copy: Path, tmp_path: Path, monkeypatch) -> None:
    gpu_there.unpack(Path(".gpu"))
    results_of(copy / gpu_there.TREE)
    monkeypatch.setattr(gpu_there, "PIECE", 200)
    monkeypatch.setattr(gpu_there, "MOST_PIECES", 99)
    gpu_there.ship(Path(".gpu"), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("results.tar.gz.*"))) > 1

    here = tmp_path / "here"
    taken = gpu_queue.collect(tmp_path / "out", here)
    assert sorted(map(str, taken)) == [
        ".tracking/run/events.jsonl",
        "models/a/weights.safetensors",
        "reports/paper-gpu/results/evaluate/a.csv",
        "reports/paper-gpu/results/evaluate/a.json",
    ]
    result = json.loads((here / "reports/paper-gpu/results/evaluate/a.json").read_text())
    assert result["test"] == 0.5
    assert result["record"][0]["provenance"] == [{"commit": "abc", "dirty": False, "seeds": [0, 1]}]
    first, rest = (here / ".tracking/run/events.jsonl").read_text().splitlines()
    assert json.loads(first)["tags"]["commit"] == "abc"
    assert rest == "rest"
    assert (here / "results/paper-gpu/evaluate/a").is_dir()
    assert "dvc commit --force evaluate@a" in gpu_queue.afterwards(taken)


def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "evil"
    outside.write_text("x")
    archive = tmp_path / "results.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(outside, arcname="../evil2")
    (tmp_path / "in").mkdir()
    with pytest.raises(gpu_queue.QueueError, match="would lie outside"):
        gpu_queue._unpack(archive, tmp_path / "in")
    assert not (tmp_path / "evil2").exists()


def test_an_entry_is_done_once_all_its_seeds_are_there(tmp_path: Path) -> None:
    record = "reports/paper-gpu/results/evaluate/a.json"
    entry = gpu_queue.Entry("evaluate-a", "", ["true"], 1, {record: 5})
    assert gpu_queue.state(entry, tmp_path) == "missing"
    results_of(tmp_path)
    assert gpu_queue.state(entry, tmp_path) == "2 of 5 seeds"
    assert gpu_queue.state(gpu_queue.Entry("evaluate-a", "", ["true"], 1, {record: 2}), tmp_path) == "done"


def test_a_benchmark_is_done_once_its_rows_come_from_a_gpu(tmp_path: Path) -> None:
    entries = [entry for entry in gpu_queue.queue(gpu_queue.paper_params()) if entry.measures]
    (tmp_path / "reports").mkdir()
    rows = [{"name": "generative: training step", "device": "NVIDIA"}, {"name": "free-form: L-BFGS", "device": "CPU"}]
    (tmp_path / "reports" / "bench.json").write_text(json.dumps(rows))
    states = {entry.name: gpu_queue.state(entry, tmp_path) for entry in entries}
    missing = dict.fromkeys(("benchmark-capsnet", "benchmark-free-form", "benchmark-matrix-capsules"), "missing")
    assert states == {"benchmark": "done", **missing}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
def test_a_command_that_outlasts_its_call_is_waited_for_by_the_next(copy: Path) -> None:
    gpu_there.unpack(Path(".gpu"))
    command = ["sleep 2; echo once >> made"]
    assert gpu_there.wait(0.01, command) == gpu_there.UNFINISHED
    assert gpu_there.wait(1, command) == 0
    assert gpu_there.wait(1, command) == 0
    assert (copy / gpu_there.TREE / "made").read_text() == "once\n"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
def test_a_command_that_fails_says_so_and_is_tried_again(copy: Path, capsys) -> None:
    gpu_there.unpack(Path(".gpu"))
    command = ["test -e made || { echo no luck; touch made; exit 3; }"]
    assert gpu_there.wait(1, command) == 3
    assert "no luck" in capsys.readouterr().out
    assert gpu_there.wait(1, command) == 0


def test_the_machine_side_needs_nothing_but_python(tmp_path: Path) -> None:
    shutil.copy(ROOT / "scripts" / "gpu_there.py", tmp_path)
    isolated = [sys.executable, "-I", "-S", str(tmp_path / "gpu_there.py"), "wait", "--help"]
    assert subprocess.run(isolated, capture_output=True, timeout=30, check=False).returncode == 0
