"""Tracking of stages in MLflow: a run for each executed item, and a run for each reproduction (a call of DVC)."""

import ast
import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psutil import Process

from pipeline.dependencies import Item
from pipeline.files import json_sha256
from pipeline.layout import JOURNALS, tracking_store
from pipeline.settings import flatten
from pipeline.shared_params import SharedParams
from pipeline.studies import file_of
from pipeline.tracking import TrackedRun

NOTE = "mlflow.note.content"
"""Name of the tag that MLflow shows as the description of a run or an experiment."""

COUNTS, VALUES = "claims", "claim_values"
"""Prefixes of a reproduction's metrics: the number of claims with each verdict, and our number for each claim."""


def _view(stage: str, metrics: Sequence[str], *tags: str, order: str = "tags.`mlflow.runName`") -> dict[str, Any]:
    """A view of a stage's runs with columns `metrics` and `tags`, sorted by `order`: a tag, or time (newest first)."""
    columns = [*(f"metrics.`{name}`" for name in metrics), *(f"tags.`{name}`" for name in tags)]
    found = {"searchFilter": f"tags.stage = '{stage}'", "orderByKey": order, "orderByAsc": order.startswith("tags")}
    return {**found, "selectedColumns": ["attributes.`Duration`", *columns]}


_COUNTED = [f"{COUNTS}/{verdict}" for verdict in ("run", "holds", "fails", "within", "better", "worse")]
_TRAINED = ("validation.bound", "validation.loss", "validation.accuracy", "validation.pixel_error", "images_per_second")
_EVALUATED = ("test.accuracy", "test.centre", "test.bound", "test.pixel_error")
VIEWS = {
    "reproductions": _view("(all)", _COUNTED, "commit", "dirty", order="attributes.start_time"),
    "trainings": _view("train", _TRAINED, "warning", "commit", "device"),
    "evaluations": _view("evaluate", _EVALUATED, "commit", "device"),
}
"""Views of MLflow's table of runs, in the form of MLflow's shared views. Other settings keep MLflow's defaults.

Trainings and evaluations are sorted by name, so that runs of one item in several reproductions are next to each other.
In a table sorted by time, MLflow shows nested runs only below their parents. The parents are the reproductions, which
these two views do not include.
"""

_EVALUATING = ("evaluate", "optimise", "turn", "infer", "routing", "equivariance", "attack")
"""Stages that do not train models. They use data sets only for evaluation."""


def open_run(
    profile: str, settings: dict[str, Any], item: Item, home: Path, commit: str, dirty: bool, dvc: Process | None
) -> TrackedRun:
    """Start the tracked run of an item, with a journal in the repository `home`. `dvc`: the reproduction's process."""
    tags: dict[str, Any] = {
        "stage": item.stage,
        "item": item.name or "",
        "profile": profile,
        "commit": commit,
        "mlflow.source.git.commit": commit,
        "mlflow.source.name": f"stages.study {item.stage}" if file_of(item.stage) else f"stages.{item.stage}",
        "mlflow.source.type": "LOCAL",
        NOTE: run_note(item.stage, item.label, commit, dirty, {}),
        "dirty": dirty,
        "params_hash": json_sha256(settings)[:12],
    }
    if experiment := os.environ.get("DVC_EXP_NAME"):
        tags["dvc_experiment"] = experiment
    group = None
    if dvc is not None:
        # A process (`pipeline repro`, else `dvc`) identifies the reproduction. psutil's hash of a process combines its
        # id and its start time (in ticks since boot). So it is unique on this host, and does not depend on the clock.
        title = experiment or f"{datetime.now(UTC):%Y-%m-%d %H:%M} {commit[:7]}"
        shared = ("profile", "commit", "mlflow.source.git.commit", "mlflow.source.type", "dirty")
        of_group = {"mlflow.source.name": "dvc repro", **{key: str(tags[key]) for key in shared}}
        group = {"id": f"{platform.node()}-{dvc.pid}-{hash(dvc)}", "name": title, "tags": of_group}
    return TrackedRun(
        home / JOURNALS,
        experiment=f"capsules/{profile}",
        experiment_tags=experiment_tags(profile),
        name=item.label,
        params=settings,
        tags=tags,
        group=group,
        context="evaluation" if item.stage in _EVALUATING else "training",
        store=tracking_store(home),
    )


def log_scorecard(
    run: TrackedRun,
    rows: Sequence[Mapping[str, Any]],
    files: Sequence[Path],
    params: SharedParams,
    commit: str,
    dirty: bool,
) -> None:
    """Log parameters, a description, claims (as metrics) and `files` for the reproduction, and `files` for `run`."""
    verdicts = Counter(row["verdict"] for row in rows if row["verdict"] != "not run")
    answers = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    note = (
        f"**{verdicts.total()} of {len(rows)} claims run: {answers}.** Profile `{params.profile}`, commit "
        f"{_committed(commit, dirty)}. Its page is the artifact `index.html`; the figures lie beside it."
    )
    repeat = _code([f"git checkout {commit}", f"python -m pipeline profile switch {params.profile}", "make repro"])
    run.log_tags({NOTE: "\n\n".join([note, "### Repeat it", repeat])}, of_group=True)
    run.log_metrics(reproduction_metrics(rows), step=0, of_group=True)
    run.log("params", of_group=True, params=flatten(params.model_dump(mode="json")))
    for path in files:
        run.log_artifact(path)
        run.log_artifact(path, of_group=True)


def run_note(name: str, label: str, commit: str, dirty: bool, numbers: Mapping[str, float]) -> str:
    """The description of an item's run: headline numbers, what stage `name` does, and how to repeat item `label`."""
    first = ", ".join(f"{key} **{value:.4g}**" for key, value in [*numbers.items()][:5])
    source = (file_of(name) or Path(__file__).with_name(f"{name}.py")).read_text(encoding="utf-8")
    what = (ast.get_docstring(ast.parse(source)) or name).partition("\n")[0]
    # The description is short, because MLflow folds it after about three lines.
    parts = [*([f"{first}."] if first else []), what, f"Repeat commit {_committed(commit, dirty)}:"]
    return "\n\n".join([*parts, _code([f"git checkout {commit}", f"dvc repro -f -s {label}"])])


def reproduction_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Metrics of a reproduction: the counts of claims that were run and of verdicts, and our number for each claim."""
    from pipeline.page.scorecard import VERDICTS

    verdicts = Counter(row["verdict"] for row in rows)
    counted = {f"{COUNTS}/{verdict.replace(' ', '_')}": float(verdicts[verdict]) for verdict in VERDICTS}
    values = {f"{VALUES}/{row['id']}": float(row["ours"]["value"]) for row in rows if row["ours"]}
    return {f"{COUNTS}/run": float(len(rows) - verdicts["not run"]), **counted, **values}


def experiment_tags(profile: str) -> dict[str, str]:
    """Tags of a profile's experiment in MLflow: a description, and the views in `VIEWS`."""
    note = (
        f"Every reproduction of the profile `{profile}` is a run with one nested run for each executed stage. "
        "The views `reproductions`, `trainings` and `evaluations` have the columns that matter: open them by the links "
        "that `make ui` prints, or add `?viewStateShareKey=trainings` to the address of the list of runs."
    )
    views = {f"mlflow.sharedViewState.{name}": json.dumps(view) for name, view in VIEWS.items()}
    return {NOTE: note, "mlflow.experimentKind": "custom_model_development", **views}


def _committed(commit: str, dirty: bool) -> str:
    return f"`{commit[:10]}`{' with uncommitted changes' if dirty else ''}"


def _code(lines: Sequence[str]) -> str:
    return "\n".join(["```", *lines, "```"])
