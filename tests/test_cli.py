"""`python -m pipeline`: profiles that never lose an edit, and commands that answer at once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from timing import processor_seconds

from pipeline import memory
from pipeline.cli import main
from pipeline.data.sources import SOURCES
from pipeline.dependencies import Graph
from pipeline.errors import UserError
from pipeline.locks import lock_path, single_instance
from pipeline.params import parse_params, read_params
from pipeline.profiles import ProfileError, Profiles
from pipeline.results.freshness import current_settings
from pipeline.results.outcome import RECORD
from pipeline.tracking import TrackedRun

ROOT = Path(__file__).parents[1]

QUICK = "# minutes on two cores\nprofile: quick  # a comment that stays\ntraining: {epochs: 40}\n"
PAPER = "# the documents' own settings\nprofile: paper\ntraining:\n  epochs: 400\n  patience: 9\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository at profile quick, which was reproduced, with profile paper, which was not."""
    (tmp_path / "profiles" / "paper").mkdir(parents=True)
    (tmp_path / "profiles" / "paper" / "params.yaml").write_text(PAPER)
    (tmp_path / "params.yaml").write_text(QUICK)
    (tmp_path / "dvc.lock").write_text("quick's lock")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pipeline(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def files(root: Path) -> dict[str, str]:
    """Every file and its content."""
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


AT_QUICK = {"params.yaml": QUICK, "dvc.lock": "quick's lock", "profiles/paper/params.yaml": PAPER}
AT_PAPER = {"params.yaml": PAPER, "profiles/quick/params.yaml": QUICK, "profiles/quick/dvc.lock": "quick's lock"}


def test_profiles_are_listed_and_the_current_one_is_marked(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline(monkeypatch, "profile") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["  paper  the documents' own settings (not yet reproduced)", "* quick  minutes on two cores"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "params.yaml"), "params.yaml: No space left on device"),
        (TimeoutError("timed out"), "timed out"),
    ],
)
def test_a_refusal_of_the_system_is_one_message(
    error: OSError, message: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(profiles: Profiles) -> str:
        raise error

    monkeypatch.setattr(Profiles, "current", property(refuse))
    assert pipeline(monkeypatch, "profile") == 1
    assert capsys.readouterr().err == f"error: {message}\n"


def test_the_current_profile_is_printed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("quick", "paper"):
        pipeline(monkeypatch, "profile", "switch", name)
        capsys.readouterr()
        assert pipeline(monkeypatch, "profile", "current") == 0
        assert capsys.readouterr().out == f"{name}\n"


def test_switching_moves_both_profiles_there_and_back_byte_for_byte(root: Path) -> None:
    profiles = Profiles(root)
    assert files(root) == AT_QUICK
    assert profiles.switch("paper")
    assert files(root) == AT_PAPER, "no profile is kept twice, and a lock of another one must not stay"
    assert not (root / "profiles" / "paper").exists()
    assert profiles.current == "paper"
    assert not profiles.switch("paper")
    (root / "dvc.lock").write_text("paper's lock")
    assert profiles.switch("quick")
    assert files(root) == {**AT_QUICK, "profiles/paper/dvc.lock": "paper's lock"}
    assert profiles.switch("paper")
    assert files(root) == {**AT_PAPER, "dvc.lock": "paper's lock"}


@pytest.mark.parametrize("name", ["params.yaml", "dvc.lock"])
def test_edits_go_along(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / name).write_text(AT_QUICK[name] + "# edited\n")
    assert pipeline(monkeypatch, "profile", "switch", "paper") == 0
    assert files(root) == {**AT_PAPER, f"profiles/quick/{name}": AT_QUICK[name] + "# edited\n"}
    assert pipeline(monkeypatch, "profile", "switch", "quick") == 0
    assert files(root) == {**AT_QUICK, name: AT_QUICK[name] + "# edited\n"}


def test_other_files_of_a_profiles_folder_stay(root: Path) -> None:
    (root / "profiles" / "paper" / "notes.md").write_text("notes")
    Profiles(root).switch("paper")
    assert files(root) == {**AT_PAPER, "profiles/paper/notes.md": "notes"}


def test_parameters_are_found_wherever_a_profile_lies(root: Path) -> None:
    profiles = Profiles(root)
    for _ in range(2):
        assert [profiles.params_path(name).read_text() for name in ("quick", "paper")] == [QUICK, PAPER]
        profiles.switch("paper")


def test_a_profile_that_is_not_there_or_not_itself(root: Path) -> None:
    for ask in (Profiles(root).switch, Profiles(root).differences, Profiles(root).params_path):
        with pytest.raises(ProfileError, match="no profile 'big'; choose one of: paper, quick"):
            ask("big")
    (root / "profiles" / "paper" / "params.yaml").write_text(QUICK)
    before = files(root)
    with pytest.raises(ProfileError, match="does not say `profile: paper`"):
        Profiles(root).switch("paper")
    assert files(root) == before


@pytest.mark.parametrize("content", ["training: {epochs: 4}", "profile: ../paper", "profile: 3", "profile: {", ""])
def test_parameters_that_name_no_profile_are_refused(root: Path, content: str) -> None:
    (root / "params.yaml").write_text(content)
    before = files(root)
    with pytest.raises(ProfileError, match=r"params\.yaml (does not name its profile|is not valid YAML)"):
        Profiles(root).switch("paper")
    assert files(root) == before


@pytest.mark.parametrize("name", ["params.yaml", "dvc.lock"])
def test_another_version_of_the_current_profile_is_not_overwritten(root: Path, name: str) -> None:
    """As Git leaves it where a switch was taken back by `git checkout`."""
    (root / "profiles" / "quick").mkdir()
    (root / "profiles" / "quick" / name).write_text(AT_QUICK[name])
    (root / name).write_text(AT_QUICK[name] + "# edited\n")
    before = files(root)
    with pytest.raises(ProfileError, match=rf"profiles/quick/{name} differs from {name}"):
        Profiles(root).switch("paper")
    assert files(root) == before
    (root / name).write_text(AT_QUICK[name])
    Profiles(root).switch("paper")
    assert files(root) == AT_PAPER, "the same version is no obstacle"


@pytest.mark.parametrize("failing", range(6))
@pytest.mark.parametrize("error", [UserError("the disk is full"), KeyboardInterrupt()])
def test_a_switch_that_cannot_be_finished_is_undone(
    root: Path, failing: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import profiles as module

    (root / "profiles" / "paper" / "dvc.lock").write_text("paper's lock")
    before = files(root)
    put, calls = module._put, []

    def fail_once(path: Path, content: bytes | None) -> None:
        calls.append(path)
        if len(calls) == failing + 1:
            raise error
        put(path, content)

    monkeypatch.setattr(module, "_put", fail_once)
    with pytest.raises(type(error)):
        Profiles(root).switch("paper")
    assert files(root) == before
    assert not (root / "profiles" / "quick").exists()


@pytest.mark.parametrize("failing", range(6))
def test_a_switch_that_cannot_be_undone_loses_nothing(
    root: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import profiles as module

    (root / "profiles" / "paper" / "dvc.lock").write_text("paper's lock")
    before = set(files(root).values())
    put, calls = module._put, []

    def fail_from_then_on(path: Path, content: bytes | None) -> None:
        calls.append(path)
        if len(calls) > failing:
            raise UserError("the disk is full")
        put(path, content)

    monkeypatch.setattr(module, "_put", fail_from_then_on)
    with pytest.raises(UserError, match="disk is full"):
        Profiles(root).switch("paper")
    assert set(files(root).values()) == before


def test_differences_are_shown_by_dotted_name(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Profiles(root).differences("paper") == [
        ("profile", "quick", "paper"),
        ("training.epochs", 40, 400),
        ("training.patience", None, 9),
    ]
    assert Profiles(root).differences("quick") == []
    assert pipeline(monkeypatch, "profile", "diff", "paper") == 0
    assert "training.epochs    40 -> 400" in capsys.readouterr().out


def test_sync_without_a_store_or_with_a_dead_one_ends_in_one_message(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    TrackedRun(root / ".tracking", experiment="e", name="n").finish()
    assert pipeline(monkeypatch, "sync-mlflow") == 1
    assert "switched off by CAPSULES_MLFLOW" in capsys.readouterr().err
    monkeypatch.delenv("CAPSULES_MLFLOW")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert pipeline(monkeypatch, "sync-mlflow") == 1
    assert capsys.readouterr().err.startswith("error: MLflow at http://127.0.0.1:9 does not answer")


def test_sync_delivers_and_prints_links_to_the_views(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = {"mlflow.sharedViewState.trainings": "{}"}
    TrackedRun(root / ".tracking", experiment="capsules/quick", name="n", experiment_tags=tags).finish()
    monkeypatch.delenv("CAPSULES_MLFLOW")
    assert pipeline(monkeypatch, "sync-mlflow", "--address", "http://127.0.0.1:5000") == 0
    *_, updated, link = capsys.readouterr().out.splitlines()
    assert updated.startswith("1 runs updated")
    assert link.startswith("capsules/quick, trainings: http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=tr")


def test_doctor_has_a_line_for_everything_and_advice_where_it_is_needed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPSULES_MIRROR", str(root / "not there"))
    assert pipeline(monkeypatch, "doctor") == 1
    lines = capsys.readouterr().out.splitlines()
    found = {line.split()[1]: line.split()[0] for line in lines if line.startswith(("ok", "problem"))}
    assert list(found) == [
        "python", "torch", "kernels", "parameters", "lock", "disk", "downloads", "mlflow", "dvc", "run-cache", "git",
    ]  # fmt: skip
    assert [found[what] for what in ("python", "torch", "mlflow")] == ["ok"] * 3
    assert [found[what] for what in ("parameters", "lock", "downloads", "dvc", "git")] == ["problem"] * 5
    for advice in (
        "CAPSULES_MIRROR names a folder that does not exist",
        "git checkout dvc.lock",
        "git init && git add -A && git commit -m start",
    ):
        assert any(advice in line for line in lines), advice


def test_doctor_takes_an_empty_mirror_for_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPSULES_MIRROR", "")
    pipeline(monkeypatch, "doctor")
    assert "no answer from \n" not in capsys.readouterr().out


def test_doctor_and_check_miss_a_gpu_that_is_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    values = yaml.safe_load(Profiles(ROOT).params_path("quick").read_text(encoding="utf-8"))
    (root / "params.yaml").write_text(yaml.safe_dump({**values, "device": "cuda"}), encoding="utf-8")
    (root / "dvc.lock").unlink()
    assert pipeline(monkeypatch, "check") == 2
    assert "torch finds no NVIDIA GPU" in capsys.readouterr().err
    assert pipeline(monkeypatch, "doctor") == 1
    assert "torch finds no NVIDIA GPU" in capsys.readouterr().out


def test_a_switch_of_mlflow_that_is_neither_on_nor_off_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPSULES_MLFLOW", "of")
    assert pipeline(monkeypatch, "sync-mlflow") == 1
    assert capsys.readouterr().err == "error: CAPSULES_MLFLOW is 'of': set it to on or off\n"


def test_doctor_names_damaged_records_of_the_run_cache(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = root / ".dvc/cache/runs/aa/aabb"
    folder.mkdir(parents=True)
    record = "cmd: python -m stages.train a\ndeps:\n- path: a\n  md5: 0\nouts:\n- path: b\n  md5: 1\n"
    for name, content in {"whole": record, "cut": record[:40], "bytes": "\0\1"}.items():
        (folder / name).write_text(content)
    assert pipeline(monkeypatch, "doctor") == 1
    lines = capsys.readouterr().out.splitlines()
    (line,) = [number for number, line in enumerate(lines) if "run-cache" in line]
    assert "1 of 3 records" in lines[line]
    assert lines[line + 1].strip() == "delete .dvc/cache/runs/aa/aabb/bytes, .dvc/cache/runs/aa/aabb/cut"


def test_doctor_names_data_that_no_public_server_has(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CAPSULES_MIRROR", raising=False)
    values = yaml.safe_load(Profiles(ROOT).params_path("quick").read_text())
    values["sources"].append("smallnorb48")
    values["datasets"]["toys"] |= {"source": "smallnorb48", "train": 100, "validation": 50, "test": 100}
    (root / "params.yaml").write_text(yaml.safe_dump(values))

    def found() -> list[str]:
        pipeline(monkeypatch, "doctor")
        lines = capsys.readouterr().out.splitlines()
        assert sum(line.split()[1:2] == ["downloads"] for line in lines) == 1
        return lines

    lines = found()
    (line,) = (line for line in lines if line.split()[1:2] == ["downloads"])
    assert line.startswith("problem")
    assert "smallnorb48: not on any public server" in line
    assert any("set CAPSULES_MIRROR to a folder or URL that has the files" in line for line in lines)
    for file in SOURCES["smallnorb48"].files:
        path = root / "data" / "raw" / "smallnorb48" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert not any("not on any public server" in line for line in found()), "existing files need no server"


def test_status_lists_the_items_of_a_profile_and_those_that_run_of_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profiles" / "paper").mkdir(parents=True)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    values = Profiles(ROOT).params_path("quick").read_text(encoding="utf-8")
    (tmp_path / "params.yaml").write_text(values)
    (tmp_path / "profiles" / "paper" / "params.yaml").write_text(values.replace("profile: quick", "profile: paper"))
    monkeypatch.chdir(tmp_path)
    run = next(iter(yaml.safe_load(values)["runs"]))

    def states(*profile: str) -> dict[str, str]:
        assert pipeline(monkeypatch, "status", *profile) == 0
        return dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[:-1])

    with single_instance(lock_path(tmp_path, f"train@{run}"), run):
        found, of_paper = states(), states("paper")
    assert found.pop(f"train/{run}") == "running"
    assert set(found.values()) == {"missing"}
    assert set(of_paper.values()) == {"missing"}
    assert of_paper.keys() == found.keys() | {f"train/{run}"}
    assert pipeline(monkeypatch, "status", "big") == 1


def test_status_names_results_that_are_not_as_the_lock_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a lock that has the result, after an edit of the result, and without the lock."""
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    shutil.copy(Profiles(ROOT).params_path("quick"), tmp_path / "params.yaml")
    values = read_params(tmp_path / "params.yaml")
    settings = current_settings(Graph.load(tmp_path, values), parse_params(values))["train/vae-digits"]
    result = tmp_path / "reports/quick/results/train/vae-digits.json"
    result.parent.mkdir(parents=True)
    record = {"provenance": [{"stage": "train", "item": "vae-digits", "settings": settings}]}
    result.write_text(json.dumps({RECORD: [record]}))
    md5 = hashlib.md5(result.read_bytes(), usedforsecurity=False).hexdigest()
    out = {"path": "reports/quick/results/train/vae-digits.json", "md5": md5, "size": 1}
    lock = tmp_path / "dvc.lock"
    lock.write_text(yaml.safe_dump({"stages": {"train@vae-digits": {"cmd": "t", "outs": [out]}}}))
    monkeypatch.chdir(tmp_path)

    def state() -> str:
        assert pipeline(monkeypatch, "status") == 0
        return next(line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("train/vae-d"))

    assert state() == "recorded"
    result.write_text(result.read_text() + "\n")
    assert state() == "unlocked"
    lock.unlink()
    assert state() == "unlocked"
    lock.write_text("stages: [1]")
    assert pipeline(monkeypatch, "status") == 1
    assert "dvc.lock is not what DVC writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "shown"),
    [((), ("profile", "status", "sync-mlflow", "doctor")), (("fan-out",), ("--workers", "--scheduler", "--remote"))],
)
def test_help_answers_in_under_a_second(command: tuple[str, ...], shown: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "pipeline", *command, "--help"]
    outputs = []

    def ask_for_help() -> None:
        outputs.append(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)

    assert min(processor_seconds(ask_for_help) for _ in range(3)) < 1.0
    assert all(word in outputs[0] for word in shown)


def test_nothing_heavy_is_imported_for_help() -> None:
    code = "import sys, pipeline.cli; print([m for m in ('torch', 'mlflow', 'pandas', 'requests') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert output.stdout == "[]\n"


def test_the_repositorys_own_profiles_hold_good_parameters() -> None:
    from pipeline.params import load_params

    profiles = Profiles(ROOT)
    found = profiles.all()
    assert {profile.name for profile in found} >= {"quick", "paper"}
    assert not (ROOT / "profiles" / profiles.current).exists(), "no profile is kept twice"
    for profile in found:
        path = profiles.params_path(profile.name)
        assert load_params(path).profile == profile.name
        assert profile.about, f"{path} should begin with a comment that says what it is for"


def test_check_names_what_does_not_fit_and_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = root / "params.yaml"
    values = yaml.safe_load(Profiles(ROOT).params_path("quick").read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    (root / "dvc.lock").write_text("<<<<<<< HEAD\n")
    assert pipeline(monkeypatch, "check") == 1
    assert "dvc.lock" in capsys.readouterr().err
    (root / "dvc.lock").unlink()
    assert pipeline(monkeypatch, "check") == 0
    path.write_text(yaml.safe_dump({**values, "devise": "cpu"}), encoding="utf-8")
    assert pipeline(monkeypatch, "check") == 2
    assert "devise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("vae-digit", "there is no run 'vae-digit'. profile paper: matrix-mnist; profile quick: vae-digits"),
        ("matrix-mnist", "run 'matrix-mnist' is in profile paper: `python -m pipeline profile switch paper` first"),
        ("models/vae-digits", "models/vae-digits has no trained run: `dvc pull -r published models/vae-digits`"),
    ],
)
def test_load_says_where_a_run_is(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: str, message: str
) -> None:
    (root / "params.yaml").write_text(QUICK + "runs: {vae-digits: {}}\n")
    (root / "profiles" / "paper" / "params.yaml").write_text(PAPER + "runs: {matrix-mnist: {}}\n")
    assert pipeline(monkeypatch, "load", run) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("vae-digits", "hidden"), 65_536, "runs.vae-digits: the model has 104,858,404 weights"),
        (
            ("capsnet-routed-digits", "kernel"),
            20,
            "runs.capsnet-routed-digits: no such model for images of 28x28 pixels",
        ),
    ],
)
def test_check_refuses_models_that_cannot_be_built_or_do_not_fit_into_memory(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: tuple[str, str],
    value: int,
    message: str,
) -> None:
    path = root / "params.yaml"
    values = yaml.safe_load(Profiles(ROOT).params_path("quick").read_text(encoding="utf-8"))
    values = json.loads(json.dumps(values))  # sections that are merged become separate
    run, name = where
    values["runs"][run]["model"][name] = value
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    (root / "dvc.lock").unlink()
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000_000)
    assert pipeline(monkeypatch, "check") == 2
    assert message in capsys.readouterr().err
