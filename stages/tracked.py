"""What a stage tracks in MLflow: its run, a trained model, and the figures and claims of a whole reproduction."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.files import json_sha256
from pipeline.layout import JOURNALS, model_folder, tracking_store
from pipeline.settings import flatten
from pipeline.studies import file_of
from pipeline.tracking import Group, TrackedRun
from stages import notes

if TYPE_CHECKING:
    from psutil import Process

    from pipeline.dependencies import Item
    from pipeline.page.scorecard import Row
    from stages.workspace import Workspace

_EVALUATING = ("evaluate", "optimise", "turn", "infer", "routing", "equivariance", "attack")
"""Stages that train nothing: they use data sets for evaluation."""


def params_hash(parameters: Any) -> str:
    """A short hash of the parameters."""
    return json_sha256(parameters)[:12]


def open_run(
    profile: str,
    settings: dict[str, Any],
    item: Item,
    home: Path,
    commit: str,
    dirty: bool,
    dvc: Process | None,
) -> TrackedRun:
    """The tracked run of a stage on an item.

    Args:
        home: the repository with the files that outlive a stage.
        dvc: the process of the reproduction, whose runs form a group.
    """
    tags: dict[str, Any] = {
        "stage": item.stage,
        "item": item.name or "",
        "profile": profile,
        "commit": commit,
        "mlflow.source.git.commit": commit,
        "mlflow.source.name": f"stages.study {item.stage}" if file_of(item.stage) else f"stages.{item.stage}",
        "mlflow.source.type": "LOCAL",
        notes.NOTE: notes.run_note(item.stage, item.label, commit, dirty, {}),
        "dirty": dirty,
        "params_hash": params_hash(settings),
    }
    experiment = os.environ.get("DVC_EXP_NAME")
    if experiment:
        tags["dvc_experiment"] = experiment
    group = None
    if dvc is not None:
        # One reproduction is one `dvc` process. psutil's hash combines its id and its start in ticks since boot: unique
        # on this host, and unchanged when the clock is set.
        title = experiment or f"{datetime.now(UTC):%Y-%m-%d %H:%M} {commit[:7]}"
        shared = ("profile", "commit", "mlflow.source.git.commit", "mlflow.source.type", "dirty")
        of_group = {"mlflow.source.name": "dvc repro", **{key: str(tags[key]) for key in shared}}
        group = Group(f"{platform.node()}-{dvc.pid}-{hash(dvc)}", title, of_group)
    return TrackedRun(
        home / JOURNALS,
        experiment=f"capsules/{profile}",
        experiment_tags=notes.experiment_tags(profile),
        name=item.label,
        params=settings,
        tags=tags,
        group=group,
        context="evaluation" if item.stage in _EVALUATING else "training",
        store=tracking_store(home),
    )


def log_model(workspace: Workspace, numbers: Mapping[str, float]) -> None:
    """Track the weights that a training wrote as a model, with a card that says what they are and how to load them.

    Args:
        numbers: the headline numbers.
    """
    run, name = workspace.run, str(workspace.entry.name)
    settings, folder = workspace.params.runs[name], model_folder(workspace.root, name)
    if not folder.exists():
        return
    dataset = workspace.context.opened[settings.dataset]
    images = {"name": "images", "type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, *dataset.shape]}}
    card = {
        "run": name,
        "variant": settings.variant,
        "dataset": dataset.label,
        "commit": workspace.commit,
        "loader": "pipeline.models.load_trained",
        "seeds": settings.seeds,
        "signature": {"inputs": [images]},
        "settings": settings.model_dump(mode="json"),
    }
    kept = [{"file": file} for file in run.keep(sorted(folder.iterdir()))]
    run.log("model", name=name, kind=settings.variant, files=kept, card=card, metrics=dict(numbers))


def log_figures(run: TrackedRun, figures: Mapping[Path, Sequence[str]]) -> None:
    """Track figures with this run, the whole reproduction, and the tracked runs whose results they show."""
    for path, shown in figures.items():
        run.log_artifact(path, "figures")
        run.log_artifact(path, "figures", of_group=True)
        for earlier in shown:
            run.log_artifact(path, "figures", of_run=earlier)


def log_scorecard(workspace: Workspace, rows: Sequence[Row], files: Sequence[Path]) -> None:
    """Track the claims as metrics of the reproduction, its parameters and description, and files that sum it up."""
    from pipeline.page.scorecard import count_verdicts
    from pipeline.results.claims import DOCUMENTS

    run, counts = workspace.run, count_verdicts(rows)
    documents = []
    for number, title in DOCUMENTS.items():
        ran = [row["verdict"] != "not run" for row in rows if row["document"] == number]
        documents.append((number, title, sum(ran), len(ran)))
    note = notes.reproduction_note(workspace.profile, workspace.commit, workspace.dirty, counts, documents)
    run.log_tags({notes.NOTE: note}, of_group=True)
    run.log_metrics(notes.reproduction_metrics(rows, counts), step=0, of_group=True)
    run.log("params", of_group=True, params=flatten(workspace.params.model_dump(mode="json")))
    for path in files:
        run.log_artifact(path)
        run.log_artifact(path, of_group=True)
