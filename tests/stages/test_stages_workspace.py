"""What every stage stands in: checks before work, locks, exit codes, provenance, and going when it is told to."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from tqdm import tqdm

from pipeline.commits import COMMIT, git_state
from pipeline.dependencies import Graph
from pipeline.errors import UserError
from pipeline.layout import model_folder
from pipeline.params import load_params
from pipeline.profiles import Profiles
from pipeline.results.outcome import Outcome, one
from pipeline.studies.context import Opened
from stages.tracked import params_hash
from stages.workspace import BesideBars, stage

ROOT = Path(__file__).parents[2]
RUN = "capsules-digits"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone"
    folder.mkdir()
    shutil.copy(Profiles(ROOT).params_path("quick"), folder / "params.yaml")
    shutil.copy(ROOT / "dvc.yaml", folder)
    return folder


def edit(root: Path, **changes: Any) -> None:
    values = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump(values | changes))


def journal(root: Path) -> list[dict[str, Any]]:
    (path,) = (root / ".tracking").glob("*/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_process(root: Path, body: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process in `root` that runs `body` inside a stage.

    It takes Ctrl-C as from a terminal: tests that were started in the background hand down that it is to be ignored.
    """
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    entered = f"from stages.workspace import stage\nwith stage('train', '{RUN}') as w:\n    {body}"
    code = f"import signal, sys, time\n{heard}\n{entered}"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=root,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def test_a_stage_records_itself_and_knows_its_places(root: Path) -> None:
    with stage("train", RUN, root) as workspace:
        workspace.run.log_metrics({"bound": 1.0}, 0)
        context = workspace.context
        context.opened["digits"] = Opened("digits", "ab", (1, 8, 8))
        context.seeds, context.epochs = [0, 1], [2.0]
        record = workspace.provenance()
        assert workspace.places.record == root / f"reports/quick/results/train/{RUN}.json"
        assert workspace.places.table == root / f"reports/quick/results/train/{RUN}.csv"
        assert workspace.places.arrays is None, "training has no arrays"
        assert context.checkpoints == root / ".cache/resume"
    assert {key: record[key] for key in ("stage", "item", "profile", "dataset", "seeds", "epochs", "commit")} == {
        "stage": "train",
        "item": RUN,
        "profile": "quick",
        "dataset": "digits",
        "seeds": [0, 1],
        "epochs": 2,
        "commit": "unknown",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["created"])
    json.dumps(record, allow_nan=False)
    events = journal(root)
    values = workspace.params.model_dump(mode="json")
    assert record["settings"] == {
        "datasets": {"digits": values["datasets"]["digits"]},
        "runs": {RUN: values["runs"][RUN]},
    }
    assert record["tracking_run"] == events[0]["id"]
    assert events[0]["experiment"] == "capsules/quick"
    assert (
        events[0]["params"][f"runs.{RUN}.model.objects"] == workspace.params.runs[RUN].model_dump()["model"]["objects"]
    )
    assert events[0]["tags"]["params_hash"] == record["params_hash"]
    assert events[-1] == {**events[-1], "event": "end", "status": "FINISHED"}


def test_a_stage_describes_itself_and_a_training_its_model(root: Path) -> None:
    with stage("train", RUN, root) as workspace:
        workspace.context.opened["digits"] = Opened("digits", "ab", (1, 8, 8))
        folder = model_folder(root, RUN)
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(b"weights")
        (folder / "model.json").write_text("{}")
        table = pd.DataFrame({"epoch": [1]})
        numbers = {"validation": {"bound": one(417.38261)}, "seconds": 3.0}
        workspace.write(Outcome("training", table, numbers, ("validation.bound",)))
    events = journal(root)
    first, last = (tags["mlflow.note.content"] for tags in (events[0]["tags"], events[-3]["tags"]))
    for note in (first, last):
        assert "Train every replica of one run" in note
        assert f"dvc repro -f -s train@{RUN}" in note
    assert "417.4" in last, "the headline numbers are known at the end"
    assert "417.4" not in first
    (model,) = (event for event in events if event["event"] == "model")
    assert (model["name"], model["kind"], model["metrics"]) == (RUN, "generative", {"validation.bound": 417.4})
    assert {Path(each["file"]).name for each in model["files"]} == {"weights.safetensors", "model.json"}
    assert model["card"]["settings"] == workspace.params.runs[RUN].model_dump(mode="json")
    assert json.loads(events[0]["experiment_tags"]["mlflow.sharedViewState.trainings"])["selectedColumns"]


@pytest.mark.parametrize(("name", "context"), [("train", "training"), ("evaluate", "evaluation")])
def test_a_data_set_is_recorded_with_its_use(root: Path, name: str, context: str) -> None:
    with stage(name, RUN, root) as workspace:
        workspace.run.log_dataset("digits", "digits (scikit-learn)", "ab" * 32)
    assert [event["context"] for event in journal(root) if event["event"] == "dataset"] == [context]


def test_a_failed_training_has_no_model_and_says_what_went_wrong(root: Path) -> None:
    folder = root / "models" / RUN
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(b"weights")
    with pytest.raises(ValueError, match="too bad"), stage("train", RUN, root):
        raise ValueError("too bad")
    events = journal(root)
    assert not [event for event in events if event["event"] == "model"]
    (tags,) = (event["tags"] for event in events if "error" in event.get("tags", {}))
    assert tags["error"] == "ValueError: too bad"


def test_bad_parameters_stop_a_stage_before_any_work(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, device="tpu")
    with pytest.raises(SystemExit) as caught, stage("train", RUN, root):
        pytest.fail("no work may be done")
    assert caught.value.code == 2
    assert "device" in capsys.readouterr().err
    assert {path.name for path in root.iterdir()} == {"params.yaml", "dvc.yaml"}


@pytest.mark.parametrize("item", ["capsules-digit", None])
def test_an_unknown_item_is_answered_with_what_there_is(
    root: Path, item: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught, stage("train", item, root):
        pytest.fail("no work may be done")
    assert caught.value.code == 2
    assert "capsules-digits, cnn-digits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"), [(None, "dvc.yaml"), ("stages: {one: {cmd: a}}", "has no stage train")]
)
def test_without_its_entry_in_dvc_yaml_a_stage_does_no_work(
    root: Path, content: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "dvc.yaml").unlink()
    if content is not None:
        (root / "dvc.yaml").write_text(content)
    with pytest.raises(SystemExit) as caught, stage("train", RUN, root):
        pytest.fail("no work may be done")
    assert caught.value.code == 1
    assert message in capsys.readouterr().err
    assert not (root / ".tracking").exists()


def test_outside_a_repository_a_stage_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught, stage("figures"):
        pytest.fail("no work may be done")
    assert caught.value.code == 2
    assert "no params.yaml" in capsys.readouterr().err


def test_an_experiment_in_a_copy_keeps_its_runs_in_the_repository(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_STAGE", "train@x")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with stage("train", RUN, root) as workspace:
        assert workspace.context.root == root
        assert workspace.context.checkpoints == tmp_path / ".cache/resume"
    assert journal(tmp_path)[-1]["status"] == "FINISHED"
    assert not (root / ".tracking").exists()


@pytest.mark.parametrize(
    ("fill", "what"),
    [
        (lambda: torch.empty(2**60), "memory is full"),
        (lambda: bytearray(2**62), "memory is full"),
        (lambda: _raise(torch.OutOfMemoryError("CUDA out of memory")), "the GPU's memory is full"),
    ],
)
def test_a_full_memory_is_named(
    root: Path, capsys: pytest.CaptureFixture[str], fill: Callable[[], object], what: str
) -> None:
    with pytest.raises(SystemExit) as caught, stage("train", RUN, root):
        fill()
    assert caught.value.code == 1
    assert f"error: {what}: lower batch_size" in capsys.readouterr().err
    assert journal(root)[-1]["status"] == "FAILED"


def test_other_errors_of_torch_are_not_hidden(root: Path) -> None:
    with pytest.raises(RuntimeError, match="must match"), stage("train", RUN, root):
        torch.ones(2) + torch.ones(3)


def _raise(error: Exception) -> None:
    raise error


class WorseError(UserError):
    exit_code = 7


def test_an_error_the_user_can_mend_is_one_message_and_its_exit_code(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught, stage("train", RUN, root):
        raise WorseError("the weights are missing")
    assert caught.value.code == 7
    assert capsys.readouterr().err == "error: the weights are missing\n"
    assert journal(root)[-1]["status"] == "FAILED"


def test_a_full_disk_is_named_with_its_path(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, stage("train", RUN, root):
        raise OSError(28, "No space left on device", "/some/file")
    assert caught.value.code == 1
    assert "No space left on device: /some/file" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(root: Path) -> None:
    with pytest.raises(ZeroDivisionError), stage("train", RUN, root):
        _ = 1 / 0
    tags = [event["tags"] for event in journal(root) if event["event"] == "tags"]
    assert any("ZeroDivisionError" in each.get("error", "") for each in tags)
    assert journal(root)[-1]["status"] == "FAILED"


def test_a_message_beside_a_progress_bar_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("of a stage")
    logger.addHandler(BesideBars())
    with tqdm(total=3, desc="epochs", file=sys.stderr):
        logger.warning("the %s is gone", "server")
    assert "\rthe server is gone\n" in capsys.readouterr().err


def test_a_second_copy_is_refused_until_the_first_is_gone(root: Path) -> None:
    first = in_process(root, "print('in', flush=True); time.sleep(60)")
    assert first.stdout is not None
    assert first.stdout.readline() == "in\n"
    second = in_process(root, "print('in')")
    output, errors = second.communicate(timeout=30)
    assert (second.returncode, output) == (1, "")
    assert f"train@{RUN} is already running (process {first.pid})" in errors
    first.kill()  # the hardest way to go still gives the lock back
    first.communicate()
    third = in_process(root, "print('in')")
    assert third.communicate(timeout=30)[0] == "in\n"


def test_other_items_are_not_held_up(root: Path) -> None:
    with stage("train", RUN, root), stage("train", "vae-digits", root):
        pass


def test_told_to_stop_a_stage_ends_in_order(root: Path) -> None:
    process = in_process(root, "print('in', flush=True); time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGTERM
    assert journal(root)[-1]["status"] == "KILLED"


def test_interrupted_by_the_user_there_is_no_traceback(root: Path) -> None:
    process = in_process(root, "print('in', flush=True); time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=10)[1]
    assert (process.returncode, errors) == (
        130,
        "error: stopped by the user; a training that is run again continues from its last checkpoint\n",
    )


@dataclass
class Reproduction:
    """A process that makes DVC run a stage that takes two minutes, in which the stage is when this is made."""

    root: Path
    stage: int
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, root: Path, command: list[str], shell: str = "/bin/sh") -> Reproduction:
        shutil.copytree(ROOT / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache"))
        (root / "work.py").write_text(
            "import os, time\nfrom pathlib import Path\nfrom stages.workspace import stage\n"
            f"with stage('train', '{RUN}'):\n    Path('pid').write_text(str(os.getpid()))\n    time.sleep(120)\n"
        )
        graph = yaml.safe_load((root / "dvc.yaml").read_text())
        graph["stages"]["one"] = {"cmd": f"'{sys.executable}' work.py"}
        (root / "dvc.yaml").write_text(yaml.safe_dump(graph))
        (root / "Makefile").write_text(f"repro:\n\t@'{sys.executable}' -m dvc repro one\nnested:\n\t@$(MAKE) repro\n")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SHELL": shell}
        git(root, "init", "-q")
        with (root / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
        wait_for(lambda: (root / "pid").exists() and (root / "pid").read_text() != "", 30)
        time.sleep(1)
        return cls(root, int((root / "pid").read_text()), process)

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, and check that all that it started ends."""
        self.process.send_signal(number)
        self.process.wait(10)
        wait_for(lambda: not alive(self.stage), 8)
        assert journal(self.root)[-1]["status"] == "KILLED"
        assert journal(self.root)[0]["group"] is not None


DVC = [sys.executable, "-m", "dvc", "repro", "one"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])  # one replaces itself by the command, one may not
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stage_does_not_outlive_the_reproduction(root: Path, shell: str, number: signal.Signals) -> None:
    Reproduction.start(root, DVC, shell).stop(number)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_stage_does_not_outlive_a_killed_make(root: Path) -> None:
    """Nor one make that was started by another, as in `make paper`."""
    Reproduction.start(root, ["make", "nested"]).stop(signal.SIGKILL)
    assert "the process that started this stage has ended" in (root / "log").read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_stages_write_themselves_makes_no_commit_dirty(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(root, "init", "-q")
    assert git_state(root) == ("unknown", True)
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    commit = git(root, "rev-parse", "HEAD").strip()
    for name in ("dvc.lock", "profiles/quick/dvc.lock", "reports/quick/scorecard.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("new")
    assert git_state(root) == (commit, False)
    edit(root, device="cpu")
    assert git_state(root) == (commit, True)
    monkeypatch.setenv(COMMIT, "abc")
    assert git_state(root) == ("abc", False), "what is said of copied code comes before the repository around it"
    monkeypatch.setenv(COMMIT, "abc-dirty")
    assert git_state(root) == ("abc", True)


def moved(before: Graph, after: Graph, root: Path, values: dict[str, Any]) -> set[tuple[str, str | None]]:
    """The items whose settings, and so their hash, differ between `values` and what is in `root` now."""
    now = load_params(root / "params.yaml").model_dump(mode="json")
    return {
        (name, item)
        for name, items in before.items.items()
        for item in items
        if params_hash(before.settings(name, item, values)) != params_hash(after.settings(name, item, now))
    }


def test_every_item_depends_on_its_own_parameters_only(root: Path) -> None:
    before, old = Graph.load(root), load_params(root / "params.yaml").model_dump(mode="json")
    values = yaml.safe_load((root / "params.yaml").read_text())
    values["runs"]["vae-digits"]["training"] = {**values["runs"]["vae-digits"]["training"], "epochs": 77}
    values["device"] = "cpu"
    assert old["device"] != "cpu"
    edit(root, **values)
    sweeps = {("sweep", item) for item in before.items["sweep"] if str(item).startswith("vae-digits-")}
    assert len(sweeps) > 1
    everything = {("figures", None), ("tables", None)}
    found = moved(before, Graph.load(root), root, old)
    own = {(stage, "vae-digits") for stage in ("train", "evaluate", "equivariance", "data_efficiency")}
    assert found == {*own, *sweeps, *everything}


TRAINED_AND_PROBED = {"posterior", "sweep", "sensitivity", "presence_ablation", "data_efficiency"}


@pytest.mark.parametrize(
    ("key", "value", "stages"),
    [
        ("probe_images", 33, {"evaluate", "optimise", *TRAINED_AND_PROBED}),
        ("seed", 9, {"evaluate", *TRAINED_AND_PROBED}),
        ("affine_versions", 2, {"evaluate"}),
    ],
)
def test_items_depend_on_what_they_use_of_the_probes_settings(
    root: Path, key: str, value: int, stages: set[str]
) -> None:
    graph, old = Graph.load(root), load_params(root / "params.yaml").model_dump(mode="json")
    edit(root, evaluate={**yaml.safe_load((root / "params.yaml").read_text())["evaluate"], key: value})
    assert {name for name, _ in moved(graph, graph, root, old)} == {*stages, "figures", "tables"}
