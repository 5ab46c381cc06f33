"""Runs the items that are out of date in this repository, several at once, with one `dvc repro` per core.

DVC lets several `dvc repro` run in one repository if none of them writes what another reads or writes. So items are put
in groups. Studies that need the same runs are in one group. If they need only one run, its training is in the group,
too. A group that needs several runs waits for the groups that train them. Data sets are prepared first; figures and
tables are made last. Results are the same as with a plain `dvc repro`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import chdir
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Never

from dvc.exceptions import DvcException
from dvc.repo import Repo
from joblib import cpu_count
from networkx import topological_sort
from tqdm import tqdm

from pipeline.errors import UserError

PREPARING = frozenset({"download", "own_images", "preprocess"})
"""Stages that prepare data sets."""
DRAWING = frozenset({"figures", "tables"})
"""Stages that show all results."""
Group = frozenset[str]
"""The key of a group: all items `train@<run>` in it or needed by it. If there are none, the group's only item."""


@dataclass(frozen=True)
class PlannedItem:
    """One item of dvc.yaml.

    Attributes:
        needs: all items that it needs, directly or indirectly (a study of a run also needs the run's data set).
        behind: the items of `needs` that are stale.
        stale: whether the item itself, or one of `needs`, is out of date.
        uncached: paths of the item's outputs that DVC does not cache, relative to the repository.
    """

    needs: frozenset[str]
    behind: frozenset[str]
    stale: bool
    uncached: tuple[str, ...]


Plan = Mapping[str, PlannedItem]
"""Items by name, in an order in which each item comes after the items that it needs."""


def read_plan(root: Path, targets: Sequence[str] = ()) -> Plan:
    """The plan for the targets and all items that they need (default: all items). Raises `UserError` if DVC fails."""
    plan: dict[str, PlannedItem] = {}
    try:
        with chdir(root), Repo(str(root)) as repo:  # DVC looks for targets in the working folder
            graph = repo.index.graph
            chosen = {each for target in targets for each in repo.stage.collect(target, with_deps=True)} or set(graph)
            changed = repo.status(list(targets) or None, with_deps=bool(targets))
            for stage in reversed(list(topological_sort(graph))):  # an edge leads from an item to an item that it needs
                if stage in chosen:
                    name, direct = stage.addressing, [need.addressing for need in graph.successors(stage)]
                    needs = frozenset(direct).union(*(plan[need].needs for need in direct))
                    behind = frozenset(need for need in needs if plan[need].stale)
                    uncached = tuple(os.path.relpath(out.fs_path, root) for out in stage.outs if not out.use_cache)
                    plan[name] = PlannedItem(needs, behind, name in changed or bool(behind), uncached)
    except DvcException as error:
        raise UserError(f"DVC: {error}") from error
    return plan


def reproduce(root: Path, targets: Sequence[str] = (), jobs: int | None = None) -> int:
    """Bring the targets up to date. Runs `jobs` groups at once (by default, one per core). Returns the exit code."""
    plan = read_plan(root, targets)
    data = [name for name, item in plan.items() if item.stale and name.partition("@")[0] in PREPARING]
    if data and start_dvc(root, "repro", "--single-item", *data).wait():
        return 1
    groups, needs = grouped(plan)
    jobs = min(jobs or cpu_count(), len(groups))
    if jobs > 1 and (unfinished := _run(root, groups, needs, jobs)):
        now = read_plan(root, targets)
        for name in sorted(unfinished):
            if now[name].stale:
                print(f"{name} failed, or was not run because an item before it failed")
        return 1
    return min(start_dvc(root, "repro", *targets).wait(), 1)


def grouped(plan: Plan) -> tuple[dict[Group, list[str]], dict[Group, set[Group]]]:
    """Stale items by group, and the groups that each group waits for, without items of `PREPARING` and `DRAWING`."""
    groups: dict[Group, list[str]] = {}
    for name, item in plan.items():
        if item.stale and name.partition("@")[0] not in PREPARING | DRAWING:
            runs = frozenset(each for each in (name, *item.needs) if each.startswith("train@"))
            groups.setdefault(runs or frozenset([name]), []).append(name)
    of = {name: group for group, names in groups.items() for name in names}
    return groups, {
        group: {of[need] for name in names for need in plan[name].needs if need in of} - {group}
        for group, names in groups.items()
    }


def _run(
    root: Path, groups: Mapping[Group, Sequence[str]], needs: Mapping[Group, Collection[Group]], jobs: int
) -> list[str]:
    """Run all groups, except those that need a failed group. Returns the items of groups that failed or did not run.
    Groups that wait for no other group begin first. Among these, groups with more items begin earlier.
    """
    order = sorted(
        TopologicalSorter(needs).static_order(), key=lambda group: 0 if needs[group] else -len(groups[group])
    )
    done: dict[Group, Future[bool]] = {}

    def succeeds(group: Group) -> bool:
        return all(done[need].result() for need in needs[group]) and not _run_group(root, groups[group], jobs, bar)

    pool, items = ThreadPoolExecutor(jobs), sum(map(len, groups.values()))
    with tqdm(total=items, unit="item", disable=None) as bar:
        try:
            for group in order:
                done[group] = pool.submit(succeeds, group)
            return [name for group, future in done.items() if not future.result() for name in groups[group]]
        finally:  # also after Ctrl-C, so that no further group begins
            pool.shutdown(cancel_futures=True)


def _run_group(root: Path, names: Sequence[str], jobs: int, bar: tqdm[Never]) -> int:
    """Run the items of a group in order, up to the first that fails, and show their output. Returns DVC's exit code."""
    threads = str(max(cpu_count() // jobs, 1))
    process = start_dvc(root, "repro", "--single-item", *names, stdout=subprocess.PIPE, OMP_NUM_THREADS=threads)
    assert process.stdout is not None
    for line in process.stdout:
        if "%|" in line:  # a progress bar; it ends in a carriage return, which text mode takes as the end of a line
            bar.set_postfix_str(line.partition("|")[0])
        elif line.strip():
            bar.write(line.rstrip("\n"))
            bar.update(line.startswith(("Running stage", "Stage '")))
    return process.wait()


def start_dvc(root: Path, *words: str, stdout: int | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start a DVC command, which waits while another process reads or writes DVC's files. Returns its process."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *words]
    error, env = subprocess.STDOUT if stdout else None, environment | os.environ
    return subprocess.Popen(command, cwd=root, env=env, stdout=stdout, stderr=error, text=True, errors="replace")
