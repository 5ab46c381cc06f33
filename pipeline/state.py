"""The outputs that a `dvc.lock` names, and the state of every item of a profile."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipeline.dependencies import Graph
from pipeline.errors import UserError
from pipeline.files import md5, read_yaml
from pipeline.layout import Layout
from pipeline.params import parse_params, read_params
from pipeline.profiles import LOCK
from pipeline.results.freshness import ItemStatus, current_settings, statuses
from pipeline.results.reading import Results


class Output(NamedTuple):
    """An output or a dependency of an executed item, with its path relative to the repository.

    Attributes:
        label: the item as results name it, such as `train/capsules-mnist`.
        md5: hash as in `dvc.lock`; it ends in `.dir` for a folder.
    """

    label: str
    path: str
    md5: str


def outputs(lock: Path, kind: str = "outs") -> list[Output]:
    """The outputs in a `dvc.lock`, in the order of the file. If `kind` is "deps", the dependencies that are files or
    folders. Empty if there is no `dvc.lock`. Raises `UserError` if it cannot be read.
    """
    try:
        content = read_yaml(lock) if lock.exists() else {"stages": {}}
        return [
            Output(stage.replace("@", "/", 1), out["path"], out["md5"])
            for stage, entry in content["stages"].items()
            for out in entry.get(kind, [])
        ]
    except (UserError, AttributeError, KeyError, TypeError) as error:
        advice = f"resolve its merge conflict, or restore it (git checkout HEAD {lock})"
        raise UserError(f"cannot read {lock}: {advice}. {type(error).__name__}: {error}") from None


def changed_code(root: Path, lock: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Each item's changed files and folders of code, by label: (path, short hash in `dvc.lock`, short hash now)."""
    changed: dict[str, list[tuple[str, str, str]]] = {}
    now = functools.cache(lambda path: md5(root / path) or "no file")
    for each in outputs(lock, "deps"):
        if each.path.startswith(("pipeline/", "stages/")) and now(each.path) != each.md5:
            changed.setdefault(each.label, []).append((each.path, each.md5[:7], now(each.path)[:7]))
    return changed


def profile_items(
    root: Path, path: Path, running: Callable[[str], bool] = lambda label: False, *, code: bool = False
) -> list[ItemStatus]:
    """The state of every item of a profile, then of results that belong to no item. `path` is the `params.yaml` of the
    profile. `running` says whether an item, such as `train/capsules-mnist`, is running. `code` says whether to look for
    changes of code.

    Raises `ParamsError` if the parameters are invalid, `ResultError` if a result file is corrupt, and `UserError`
    if `dvc.lock` cannot be read.
    """
    values = read_params(path)
    params = parse_params(values, path.name)
    layout = Layout(root, params.profile)
    results = Results(layout.records_folder, layout.arrays_folder)
    expected = current_settings(Graph.load(root, values), params.model_dump(mode="json"))
    files = [each for each in outputs(path.parent / LOCK) if each.path.startswith("reports/")]  # records and tables
    locked = {each.label for each in files} - {each.label for each in files if md5(root / each.path) != each.md5}
    changed = changed_code(root, path.parent / LOCK) if code else {}
    return statuses(results, expected, publish=params.publish, locked=locked, running=running, changed_code=changed)
