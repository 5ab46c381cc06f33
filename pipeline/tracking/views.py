"""Views of MLflow's table of runs, with the columns that matter, and links to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

COUNTS = "claims"
"""Prefix of the metrics of a reproduction that say how many claims have each verdict."""

VIEWS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "reproductions": (
        "tags.stage = '(all)'",
        "attributes.start_time",
        (
            "attributes.`Duration`",
            *(f"metrics.`{COUNTS}/{verdict}`" for verdict in ("run", "holds", "fails", "within", "better", "worse")),
            "tags.`commit`",
            "tags.`dirty`",
        ),
    ),
    "trainings": (
        "tags.stage = 'train'",
        "tags.`mlflow.runName`",
        (
            "attributes.`Duration`",
            *(f"metrics.`validation.{name}`" for name in ("bound", "loss", "accuracy", "pixel_error")),
            "metrics.`images_per_second`",
            "tags.`commit`",
            "tags.`device`",
        ),
    ),
    "evaluations": (
        "tags.stage = 'evaluate'",
        "tags.`mlflow.runName`",
        (
            "attributes.`Duration`",
            *(f"metrics.`test.{name}`" for name in ("accuracy", "centre", "bound", "pixel_error")),
            "tags.`commit`",
            "tags.`device`",
        ),
    ),
}
"""Views of the table of runs, by name: a filter, the order and the columns.

Sorted by name, the same training of several reproductions is below each other. Sorted by time, MLflow hides nested runs
below their parents.
"""


def view_tags() -> dict[str, str]:
    """The tags of an experiment that hold its views."""
    return {f"mlflow.sharedViewState.{name}": json.dumps(_view(*each)) for name, each in VIEWS.items()}


def links(address: str, experiments: Mapping[str, str]) -> list[str]:
    """The addresses of the views of every profile's experiment.

    Args:
        address: of MLflow's UI.
        experiments: their ids by name.
    """
    return [
        f"{name}, {view}: {address}/#/experiments/{identifier}/runs?viewStateShareKey={view}"
        "&workflowType=machine_learning"
        for name, identifier in experiments.items()
        if name.startswith("capsules/")
        for view in VIEWS
    ]


def _view(search: str, order: str, columns: Sequence[str]) -> dict[str, Any]:
    """A view of the table of runs in the form in which MLflow's page shares one."""
    return {
        "searchFilter": search,
        "orderByKey": order,
        "orderByAsc": order != "attributes.start_time",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(columns),
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsHiddenMode": "FIRST_10_RUNS",
        "groupBy": None,
        "groupsExpanded": {},
        "viewMaximized": False,
        "runListHidden": False,
        "useGroupedValuesInCharts": True,
    }
