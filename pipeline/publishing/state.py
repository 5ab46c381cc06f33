"""The state of every item of a profile, from its parameters and its results in the repository."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.dependencies import Graph
from pipeline.layout import Layout
from pipeline.params import Params, parse_params, read_params
from pipeline.profiles import LOCK
from pipeline.publishing.selection import outputs
from pipeline.results.freshness import current_settings
from pipeline.results.reading import Results
from pipeline.results.status import ItemStatus, statuses


@dataclass(frozen=True)
class ProfileState:
    """A profile with its results.

    Attributes:
        items: the state of every item of the profile, then of results that are not in it.
    """

    params: Params
    results: Results
    items: list[ItemStatus]


def profile_state(root: Path, path: Path, running: Callable[[str], bool] = lambda label: False) -> ProfileState:
    """The state of the profile whose parameters are in `path`.

    Args:
        running: whether an item's stage runs at the moment.

    Raises:
        ParamsError: the parameters are invalid.
        ResultError: a result file is corrupt; it is named.
        PublishingError: `dvc.lock` cannot be read.
    """
    values = read_params(path)
    params = parse_params(values, path.name)
    layout = Layout(root, params.profile)
    results = Results(layout.records_folder, layout.arrays_folder)
    expected = current_settings(Graph.load(root, values), params)
    locked = _locked(root, path.parent / LOCK)
    found = statuses(results, expected, publish=params.publish, locked=locked, running=running)
    return ProfileState(params, results, found)


def _locked(root: Path, lock: Path) -> set[str]:
    """The items, `<stage>/<item>`, whose results are those that DVC recorded."""
    records = [output for output in outputs(lock, ("reports/",)) if output.path.endswith(".json")]
    return {output.label for output in records if _md5(root / output.path) == output.md5}


def _md5(path: Path) -> str | None:
    """The hash that DVC knows a file by; None if there is no such file."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() if path.is_file() else None
