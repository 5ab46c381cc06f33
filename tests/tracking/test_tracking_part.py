"""One tracked run made of several trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.tracking import Part, TrackedRun
from pipeline.tracking.journal import Journal


def new_run(folder: Path, name: str = "sensitivity@pixel_sd") -> TrackedRun:
    return TrackedRun(folder, experiment="capsules/quick", name=name)


def metrics(run: TrackedRun) -> list[tuple[int, dict[str, Any]]]:
    return [(event["step"], event["values"]) for event, _ in Journal(run.path).read() if event["event"] == "metrics"]


def test_metrics_of_parts_do_not_mix(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for name in ("pixel_sd=0.1", "pixel_sd=0.4"):
        part = Part(run, name)
        assert part.id == run.id
        assert not part.resume("")  # the second part finds a run that has begun, and lets it be
        part.log_dataset("digits", "digits (scikit-learn)", "ab" * 32)
        part.log_metrics({"bound/0": 1.5}, step=1)
    assert metrics(run) == [(1, {"pixel_sd=0.1/bound/0": 1.5}), (1, {"pixel_sd=0.4/bound/0": 1.5})]


def test_a_cut_run_is_continued_by_its_first_part_and_kept_by_the_next(tmp_path: Path) -> None:
    cut = new_run(tmp_path)
    Part(cut, "a").log_metrics({"bound": 1.0}, step=1)
    Part(cut, "b").log_metrics({"bound": 2.0}, step=1)
    cut.finish("KILLED")
    run = new_run(tmp_path)
    first, second = Part(run, "a"), Part(run, "b")
    assert first.resume(cut.id)
    first.log_metrics({"bound": 1.0}, step=1)  # brought back by a checkpoint: logged already
    assert not second.resume(cut.id)
    second.log_metrics({"bound": 2.0}, step=1)
    second.log_metrics({"bound": 3.0}, step=2)
    assert run.id == cut.id
    assert metrics(run) == [(1, {"a/bound": 1.0}), (1, {"b/bound": 2.0}), (2, {"b/bound": 3.0})]


def test_the_run_of_another_study_is_not_continued(tmp_path: Path) -> None:
    """The run's own value is trained once for all hyperparameters: its checkpoint names another study's run."""
    other = new_run(tmp_path, "sensitivity@temperature")
    Part(other, "temperature=1").log_metrics({"bound": 1.0}, step=1)
    other.finish("KILLED")
    assert not Part(new_run(tmp_path), "pixel_sd=0.2").resume(other.id)
