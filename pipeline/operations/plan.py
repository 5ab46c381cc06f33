"""Which items DVC would run, and what they need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError

PREPARING = frozenset({"download", "own_images", "preprocess"})
"""Stages that prepare data sets."""
DRAWING = frozenset({"figures", "tables"})
"""Stages that show all results."""


@dataclass(frozen=True)
class PlannedItem:
    """One item of dvc.yaml.

    Attributes:
        needs: all items that it needs, directly or indirectly: a study of a run also reads the run's data set.
        behind: those of them that are out of date.
        stale: whether it is out of date, or an item behind it.
        uncached: its outputs that DVC does not cache: paths relative to the repository.
    """

    needs: frozenset[str]
    behind: frozenset[str]
    stale: bool
    uncached: tuple[str, ...]


def read_plan(root: Path, targets: Sequence[str] = ()) -> dict[str, PlannedItem]:
    """All items behind the targets, by name, each after those that it needs. Raises `UserError` for DVC's errors."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from networkx import topological_sort

    plan: dict[str, PlannedItem] = {}
    try:
        with chdir(root), Repo(str(root)) as repo:  # DVC looks for targets in the working folder
            graph = repo.index.graph
            chosen = {each for target in targets for each in repo.stage.collect(target, with_deps=True)} or set(graph)
            changed = repo.status(list(targets) or None, with_deps=bool(targets))
            for stage in reversed(list(topological_sort(graph))):  # an edge leads from an item to one that it needs
                if stage in chosen:
                    name, direct = stage.addressing, [need.addressing for need in graph.successors(stage)]
                    needs = frozenset(direct).union(*(plan[need].needs for need in direct))
                    behind = frozenset(need for need in needs if plan[need].stale)
                    uncached = tuple(os.path.relpath(out.fs_path, root) for out in stage.outs if not out.use_cache)
                    plan[name] = PlannedItem(needs, behind, name in changed or bool(behind), uncached)
    except DvcException as error:
        raise UserError(f"DVC: {error}") from error
    return plan
