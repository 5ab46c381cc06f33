"""What every stage stands in: checks before work, locks, exit codes, provenance, and going when it is told to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import torch
import yaml
from clones import Clone
from commands import wait_for
from records import tracked_events

from pipeline.commits import git_state
from pipeline.context import Opened
from pipeline.errors import ParamsError
from pipeline.layout import model_folder
from pipeline.results.outcome import Outcome, one
from stages.workspace import stage

ROOT = Path(__file__).parents[2]
RUN = "capsules-digits"


def edit(root: Path, **changes: Any) -> None:
    values = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump(values | changes))


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


@pytest.mark.parametrize("changed", ["settings", "device", "profile", "gone", "code", "nothing", "another run"])
def test_what_dvc_would_record_beside_other_results_fails(
    root: Path, changed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """DVC reads parameters and code when a stage has ended."""
    code = root / "pipeline/learning/train.py"
    code.parent.mkdir(parents=True)
    code.write_text("one")
    with suppress(SystemExit), stage("train", RUN, root):
        values = yaml.safe_load((root / "params.yaml").read_text())
        if changed == "gone":
            edit(root, runs={name: run for name, run in values["runs"].items() if name != RUN})
        elif changed == "device":
            edit(root, device="cpu")
        elif changed == "profile":
            edit(root, profile="another")
        elif changed == "code":
            code.write_text("another")
        elif changed != "nothing":
            name = RUN if changed == "settings" else next(name for name in values["runs"] if name != RUN)
            values["runs"][name]["seed" if changed == "settings" else "dataset"] = 7  # no such data set
            edit(root, runs=values["runs"])
    failed = "changed while it ran" in capsys.readouterr().err
    assert failed == (changed not in ("nothing", "another run"))


def test_a_stage_records_and_describes_itself_and_a_training_its_model(root: Path) -> None:
    with stage("train", RUN, root) as workspace:
        workspace.context.opened["digits"] = Opened("digits", "ab")
        record = workspace.provenance()
        assert workspace.context.checkpoints == root / ".cache/resume"
        folder = model_folder(root, RUN)
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(b"weights")
        (folder / "model.json").write_text("{}")
        numbers = {"validation": {"bound": one(417.38261)}, "seconds": 3.0}
        workspace.write(Outcome("training", pd.DataFrame({"epoch": [1]}), numbers, ("validation.bound",)))
    assert (root / f"reports/quick/results/train/{RUN}.json").exists()
    assert not (root / "results").exists(), "training has no arrays"
    of_stage = {"stage": "train", "item": RUN, "profile": "quick", "dataset": "digits", "commit": "unknown"}
    assert record.items() >= of_stage.items()
    events = tracked_events(root / ".tracking")
    assert record["tracking_run"] == events[0]["id"]
    assert events[0]["experiment"] == "capsules/quick"
    assert events[0]["params"][f"runs.{RUN}.model.objects"] == workspace.params.runs[RUN].model.objects
    assert events[0]["tags"]["params_hash"] == record["params_hash"]
    assert (events[-1]["event"], events[-1]["status"]) == ("end", "FINISHED")
    first, last = (tags["mlflow.note.content"] for tags in (events[0]["tags"], events[-2]["tags"]))
    assert ("417.4" in first, "417.4" in last) == (False, True), "the headline numbers are known at the end"
    kept = [Path(event["file"]).name for event in events if event["event"] == "artifact"]
    assert kept == ["model.json", "weights.safetensors"]


def test_what_cannot_run_is_refused_before_any_work(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(item: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as caught, stage("train", item, root):
            pytest.fail("no work may be done")
        assert {path.name for path in root.iterdir()} == {"params.yaml", "dvc.yaml"}
        return caught.value.code, capsys.readouterr().err

    code, told = refused("capsules-digit")
    assert (code, "capsules-digits, cnn-digits" in told) == (2, True)
    (root / "dvc.yaml").write_text("stages: {one: {cmd: a}}")
    code, told = refused(RUN)
    assert (code, "has no stage train" in told) == (1, True)
    edit(root, device="tpu")
    code, told = refused(RUN)
    assert (code, "device" in told) == (2, True)


def test_an_experiment_in_a_copy_keeps_its_runs_in_the_repository(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_STAGE", "train@x")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    with stage("train", RUN, root) as workspace:
        assert workspace.context.root == root
        assert workspace.context.checkpoints == tmp_path / ".cache/resume"
    assert tracked_events(tmp_path / ".tracking")[-1]["status"] == "FINISHED"
    assert not (root / ".tracking").exists()


def failing(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("work", "code", "told"),
    [
        (lambda: torch.empty(2**60), 1, "memory is full: lower batch_size"),
        (lambda: failing(torch.OutOfMemoryError("CUDA out of memory")), 1, "the GPU's memory is full: lower"),
        (lambda: failing(OSError(28, "No space left on device", "/some/file")), 1, "left on device: /some/file"),
        (lambda: failing(ParamsError("the weights are missing")), 2, "the weights are missing"),
    ],
)
def test_an_error_the_user_can_mend_is_one_message_and_an_exit_code(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    work: Callable[[], object], code: int, told: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("DVC_STAGE", f"train@{RUN}")
    with pytest.raises(SystemExit) as caught, stage("train", RUN, root):
        work()
    assert caught.value.code == code
    error, earlier = capsys.readouterr().err.splitlines()
    assert told in error
    assert f"`dvc checkout train@{RUN}`" in earlier
    assert tracked_events(root / ".tracking")[-1]["status"] == "FAILED"


def test_a_defect_keeps_its_traceback(root: Path) -> None:
    error = RuntimeError("shapes must match")
    with pytest.raises(RuntimeError), stage("train", RUN, root):
        raise error
    events = tracked_events(root / ".tracking")
    assert any(type(error).__name__ in event.get("tags", {}).get("error", "") for event in events)
    assert not [event for event in events if event["event"] == "artifact"]
    assert events[-1]["status"] == "FAILED"


def test_a_second_copy_is_refused_while_the_first_runs(root: Path) -> None:
    with stage("train", RUN, root), stage("train", "vae-digits", root):
        second = in_process(root, "print('in')")
        output, errors = second.communicate(timeout=60)
    assert (second.returncode, output) == (1, "")
    assert f"train@{RUN} is already running (process {os.getpid()})" in errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)])
def test_told_to_stop_a_stage_ends_in_order(root: Path, number: signal.Signals, code: int) -> None:
    process = in_process(root, "print('in', flush=True); time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    errors = process.communicate(timeout=10)[1]
    assert process.returncode == code
    assert "Traceback" not in errors
    assert tracked_events(root / ".tracking")[-1]["status"] == "KILLED"


@pytest.mark.parametrize("command", [[sys.executable, "-m", "dvc", "repro", "one"], ["make", "nested"]])
def test_a_stage_does_not_outlive_the_reproduction(root: Path, command: list[str]) -> None:
    """Nor a make that was started by another, as in `make paper`, and runs several items at once."""
    shutil.copytree(ROOT / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache"))
    (root / "work.py").write_text(
        "import os, time\nfrom pathlib import Path\nfrom stages.workspace import stage\n"
        f"with stage('train', '{RUN}'):\n    Path('pid').write_text(str(os.getpid()))\n    time.sleep(120)\n"
    )
    graph = yaml.safe_load((root / "dvc.yaml").read_text())
    graph["stages"] |= {"one": {"cmd": f"'{sys.executable}' work.py"}, "two": {"cmd": "true"}}
    (root / "dvc.yaml").write_text(yaml.safe_dump(graph))
    repro = f"@'{sys.executable}' -m pipeline repro --jobs 2 one two"
    (root / "Makefile").write_text(f"repro:\n\t{repro}\nnested:\n\t@$(MAKE) repro\n")
    Clone(root).run("git", "init", "-q")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SHELL": "/bin/sh"}
    with (
        (root / "log").open("w") as log,
        subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log) as process,
    ):
        begun = root / "pid"
        wait_for(lambda: process.poll() is not None or (begun.exists() and begun.read_text() != ""), 60)
        assert process.poll() is None, (root / "log").read_text()
        process.kill()
    with suppress(psutil.NoSuchProcess):
        stage_process = psutil.Process(int(begun.read_text()))
        wait_for(lambda: not stage_process.is_running() or stage_process.status() == psutil.STATUS_ZOMBIE, 8)
    assert tracked_events(root / ".tracking")[-1]["status"] == "KILLED"
    assert tracked_events(root / ".tracking")[0]["group"] is not None
    assert "the process that started this stage has ended" in (root / "log").read_text()


def test_what_stages_write_themselves_makes_no_commit_dirty(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = Clone(root)
    clone.run("git", "init", "-q")
    assert git_state(root) == ("unknown", True)
    clone.run("git", "add", ".")
    clone.run("git", "commit", "-qm", "first")
    commit = clone.run("git", "rev-parse", "HEAD").strip()
    for name in ("dvc.lock", "profiles/quick/dvc.lock", "reports/quick/scorecard.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("new")
    assert git_state(root) == (commit, False)
    assert git_state(root / "reports") == ("unknown", True), "a folder in somebody else's repository"
    edit(root, device="cpu")
    assert git_state(root) == (commit, True)
    monkeypatch.setenv("CAPSULES_COMMIT", "abc")
    assert git_state(root) == ("abc", False), "what is said of copied code comes before the repository around it"
    monkeypatch.setenv("CAPSULES_COMMIT", "abc-dirty")
    assert git_state(root) == ("abc", True)
