"""`python -m pipeline`: profiles that never lose an edit, and commands that answer at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from commands import file_size_limit, pipeline
from dvc.utils.hydra import apply_overrides
from records import ResultFiles

from pipeline import memory, state
from pipeline.errors import UserError
from pipeline.files import md5, write_text
from pipeline.locks import single_instance
from pipeline.profiles import Profiles

ROOT = Path(__file__).parents[1]

QUICK = "# minutes on two cores\nprofile: quick  # a comment that stays\ntraining: {epochs: 40}\n"
PAPER = "# the documents' own settings\nprofile: paper\ntraining:\n  epochs: 400\n  patience: 9\n"
ALL = Profiles(ROOT).params_path("quick").read_text(encoding="utf-8")
"""The parameters of profile quick."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository at profile quick, which was reproduced, with profile paper, which was not."""
    (tmp_path / "profiles" / "paper").mkdir(parents=True)
    (tmp_path / "profiles" / "paper" / "params.yaml").write_text(PAPER)
    (tmp_path / "params.yaml").write_text(QUICK)
    (tmp_path / "dvc.lock").write_text("quick's lock")
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
    assert pipeline(monkeypatch, "profile", "current") == 0
    assert capsys.readouterr().out == "quick\n"


def test_switching_moves_both_profiles_there_and_back_byte_for_byte(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = Profiles(root)
    assert files(root) == AT_QUICK
    assert profiles.switch("paper")
    assert files(root) == AT_PAPER, "no profile is kept twice, and a lock of another one must not stay"
    assert not (root / "profiles" / "paper").exists()
    assert profiles.current == "paper"
    assert not profiles.switch("paper")
    (root / "dvc.lock").write_text("paper's lock")
    (root / "params.yaml").write_text(PAPER + "# edited\n")
    assert pipeline(monkeypatch, "profile", "switch", "quick") == 0
    edited = {"profiles/paper/params.yaml": PAPER + "# edited\n", "profiles/paper/dvc.lock": "paper's lock"}
    assert files(root) == {**AT_QUICK, **edited}, "edits go along"


def test_a_profile_that_is_not_there_or_not_itself(root: Path) -> None:
    with pytest.raises(UserError, match=r"'big'.* paper, quick"):
        Profiles(root).switch("big")
    (root / "profiles" / "paper" / "params.yaml").write_text(QUICK)
    before = files(root)
    with pytest.raises(UserError, match="does not say `profile: paper`"):
        Profiles(root).switch("paper")
    assert files(root) == before
    for content in ("training: {epochs: 4}", "profile: ../paper"):
        (root / "params.yaml").write_text(content)
        with pytest.raises(UserError, match=r"params\.yaml"):
            Profiles(root).switch("paper")


@pytest.mark.parametrize("name", ["params.yaml", "dvc.lock"])
def test_another_version_of_the_current_profile_is_not_overwritten(root: Path, name: str) -> None:
    """As Git leaves it where a switch was taken back by `git checkout`."""
    (root / "profiles" / "quick").mkdir()
    (root / "profiles" / "quick" / name).write_text(AT_QUICK[name])
    (root / name).write_text(AT_QUICK[name] + "# edited\n")
    before = files(root)
    with pytest.raises(UserError, match=rf"profiles/quick/{name} differs from {name}"):
        Profiles(root).switch("paper")
    assert files(root) == before
    (root / name).write_text(AT_QUICK[name])
    Profiles(root).switch("paper")
    assert files(root) == AT_PAPER, "the same version is no obstacle"


def test_a_switch_that_cannot_be_finished_loses_nothing(root: Path) -> None:
    (root / "dvc.lock").write_text("quick's lock" * 100)
    before = files(root)
    with file_size_limit(len(QUICK) + len(PAPER)), pytest.raises(UserError):
        Profiles(root).switch("paper")
    assert files(root) == before


def test_doctor_has_a_line_for_everything_and_advice_where_it_is_needed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bad mirror, a folder in place of a tracking server, a damaged lock of DVC; no parameters, lock or commit."""
    monkeypatch.setenv("CAPSULES_MIRROR", str(root / "not there"))
    monkeypatch.setenv("CAPSULES_MLFLOW", "on")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")
    marks = root / ".dvc/tmp/rwlock"
    marks.parent.mkdir(parents=True)
    (root / ".dvc/config").touch()
    marks.write_text('{"read": {')
    assert pipeline(monkeypatch, "doctor") == 1
    told = capsys.readouterr().out
    found = {line.split()[1]: line.split()[0] for line in told.splitlines() if line.startswith(("ok", "problem"))}
    assert {found[what] for what in ("python", "torch", "kernels")} == {"ok"}
    assert {found[what] for what in ("parameters", "lock", "downloads", "mlflow", "dvc", "git")} == {"problem"}
    assert all(words in told for words in ("CAPSULES_MIRROR names", "./mlruns", str(marks)))
    monkeypatch.setenv("CAPSULES_MIRROR", root.as_uri())
    pipeline(monkeypatch, "doctor")
    assert f"mirror {root.as_uri()}" in capsys.readouterr().out


def test_load_names_the_runs_there_are_and_the_profile_that_has_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "params.yaml").write_text("profile: quick\nruns: {of-quick: {}}\n")
    (root / "profiles/paper/params.yaml").write_text("profile: paper\nruns: {of-paper: {}}\n")
    (root / "profiles/mine").mkdir()
    (root / "profiles/mine/params.yaml").write_text("profile: mine  # and nothing else yet\n")
    assert pipeline(monkeypatch, "load", "of-paper") == 1
    assert "profile switch paper" in capsys.readouterr().err
    assert pipeline(monkeypatch, "load", "nope") == 1
    assert "profile quick has of-quick" in capsys.readouterr().err


def test_check_names_a_params_file_whose_merges_do_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dvc exp run -S` keeps them, but writes all values beside them."""
    (root / "dvc.lock").unlink()
    (root / "params.yaml").write_text(ALL, encoding="utf-8")
    assert pipeline(monkeypatch, "check") == 0
    assert capsys.readouterr().out == ""
    apply_overrides(root / "params.yaml", ["device=cpu"])
    assert pipeline(monkeypatch, "check") == 0
    assert "With --temp, DVC leaves" in capsys.readouterr().out


def test_check_names_what_does_not_fit(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = root / "params.yaml"
    values = yaml.safe_load(ALL)
    path.write_text(ALL, encoding="utf-8")
    (root / "dvc.lock").write_text("<<<<<<< HEAD\n")
    assert pipeline(monkeypatch, "check") == 1
    assert f"git checkout HEAD {root / 'dvc.lock'}" in capsys.readouterr().err
    shutil.copy(Profiles(ROOT).params_path("quick").with_name("dvc.lock"), root / "dvc.lock")
    assert pipeline(monkeypatch, "check") == 0
    with monkeypatch.context() as read_only:
        read_only.setattr("os.access", lambda *_: False)
        assert pipeline(read_only, "check") == 1
        assert "not writable" in capsys.readouterr().err
    path.write_text(yaml.safe_dump(values | {"profile": "nope"}), encoding="utf-8")
    assert pipeline(monkeypatch, "check") == 2
    assert "dvc.lock belongs to quick" in capsys.readouterr().err
    (root / "dvc.lock").unlink()
    for change, told in (({"devise": "cpu"}, "devise"), ({"device": "cuda"}, "no NVIDIA GPU")):
        path.write_text(yaml.safe_dump(values | change), encoding="utf-8")
        assert pipeline(monkeypatch, "check") == 2
        assert told in capsys.readouterr().err
    assert pipeline(monkeypatch, "doctor") == 1
    assert "no NVIDIA GPU" in capsys.readouterr().out


def test_status_lists_the_items_of_a_profile_and_those_that_run_of_the_current_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "dvc.yaml", root)
    (root / "params.yaml").write_text(ALL)
    (root / "profiles" / "paper" / "params.yaml").write_text(ALL.replace("profile: quick", "profile: paper"))
    (root / "dvc.lock").unlink()
    run = next(iter(yaml.safe_load(ALL)["runs"]))

    def states(*profile: str) -> dict[str, str]:
        assert pipeline(monkeypatch, "status", *profile) == 0
        *items, total = capsys.readouterr().out.splitlines()
        assert total.startswith("items: ")
        return dict(line.split()[:2] for line in items)

    for _ in range(2):  # asking leaves nothing locked
        with single_instance(root, f"train@{run}"):
            found, of_paper = states(), states("paper")
    assert found.pop(f"train@{run}") == "running"
    assert set(found.values()) == {"missing"}
    assert set(of_paper.values()) == {"missing"}
    assert of_paper.keys() == found.keys() | {f"train@{run}"}
    assert pipeline(monkeypatch, "status", "big") == 1
    results = ResultFiles(root / "reports/quick/results", root / "results/quick")
    results.numbers("train", "another", {}, settings={}, seconds=3600.0)
    assert pipeline(monkeypatch, "status") == 0
    assert "~1.00 h" in (told := capsys.readouterr().out)
    assert told.endswith("the median time of the stage's items\n"), "what ~ means"


def test_an_item_whose_table_is_not_the_recorded_one_is_unlocked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "dvc.yaml", root)
    (root / "params.yaml").write_text(ALL)
    names = ("a.json", "a.csv")
    for name in names:
        write_text(root / "reports" / name, name)
    outs = [{"path": f"reports/{name}", "md5": md5(root / "reports" / name)} for name in names]
    write_text(root / "dvc.lock", yaml.safe_dump({"stages": {"train@a": {"outs": outs}}}))
    monkeypatch.setattr(state, "statuses", lambda *_, locked, **__: locked)
    assert state.profile_items(root, root / "params.yaml") == {"train/a"}
    write_text(root / "reports/a.csv", "another")
    assert state.profile_items(root, root / "params.yaml") == set()


def test_code_that_changed_since_an_item_was_executed_is_found(root: Path) -> None:
    folder = root / "pipeline/layers"
    for name in ("a.py", "b/c.py", "b/__pycache__/c.pyc"):
        write_text(folder / name, name)
    write_text(root / "stages/train.py", "one")
    paths = ("pipeline/layers", "stages/train.py", "pipeline/removed.py", "data/digits.npz")
    deps = [{"path": path, "md5": md5(root / path) or "0123456789"} for path in paths]
    write_text(root / "dvc.lock", yaml.safe_dump({"stages": {"train@a": {"deps": deps}, "tables": {"deps": deps[:2]}}}))
    assert state.changed_code(root, root / "dvc.lock") == {
        "train/a": [("pipeline/removed.py", "0123456", "no file")],
    }, "data are no code"
    write_text(folder / "b/__pycache__/c.pyc", "compiled again")
    assert len(state.changed_code(root, root / "dvc.lock")) == 1
    write_text(folder / "b/c.py", "another")
    (then, path) = (deps[0]["md5"][:7], "pipeline/layers")
    changed = state.changed_code(root, root / "dvc.lock")
    assert changed["tables"] == [(path, then, (md5(folder) or "")[:7])]
    assert changed["train/a"][0] == changed["tables"][0] != (path, then, then)


@pytest.mark.parametrize(
    ("run", "name", "value", "told"),
    [
        ("vae-digits", "hidden", 65_536, "runs.vae-digits: the model has 104,858,404 weights"),
        ("capsnet-routed-digits", "kernel", 20, "runs.capsnet-routed-digits: no model for images of 28x28"),
    ],
)
def test_check_refuses_models_that_cannot_be_built_or_do_not_fit_into_memory(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    run: str, name: str, value: int, told: str,
) -> None:  # fmt: skip
    values = json.loads(json.dumps(yaml.safe_load(ALL)))  # sections that are merged become separate
    values["runs"][run]["model"][name] = value
    (root / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    (root / "dvc.lock").unlink()
    monkeypatch.setattr(memory, "available_bytes", lambda: 2_000_000_000)
    assert pipeline(monkeypatch, "check") == 2
    assert told in capsys.readouterr().err
