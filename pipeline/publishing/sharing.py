"""Pushes to a DVC remote everything that DVC's run cache remembers.

`dvc push --run-cache` pushes all records of the run cache, but only those outputs that `dvc.lock` names and that lie in
DVC's cache. A record restores a stage only where all its outputs are. So two things are missing on the remote: outputs
at other parameters, and the results that are kept in Git, which every stage here has: DVC copies them into its local
cache, for the run cache, and pushes none. This pushes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pipeline.errors import UserError
from pipeline.publishing.selection import REMOTE


@dataclass(frozen=True)
class Shared:
    """How many stages' runs the run cache remembers, and how many of their files were pushed now, or could not be."""

    runs: int
    files: int
    failed: int


def share(root: Path, remote: str | None = None, without: Sequence[str] = ()) -> Shared:
    """Push the run cache of the repository in `root`, and the outputs of all its records.

    Args:
        remote: name of a DVC remote; None: the default one.
        without: outputs that are not pushed: folders or files, relative to `root`.

    Raises:
        UserError: there is no such remote, it does not answer, it cannot have a run cache (one over HTTP), or it is
            the folder of published results, which is in Git.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as repo, repo.lock:
            _check_remote(repo, root, remote)
            entries = repo.stage_cache.push(remote)
            result = repo.cloud.push(_outputs(repo, entries, without), remote=remote)
    except (DvcException, OSError) as error:
        raise UserError(f"cannot push to the remote {remote or '(default)'}: {error}") from error
    return Shared(len(entries), len(result.transferred), len(result.failed))


def _check_remote(repo: Any, root: Path, remote: str | None) -> None:
    if remote is None and repo.config["core"].get("remote") is None:
        raise UserError(
            "there is no default DVC remote: name one with --remote, or `dvc remote add --local -d team ADDRESS`"
        )
    if Path(repo.cloud.get_remote(remote).path).resolve() == (root / REMOTE).resolve():
        raise UserError(
            f"{REMOTE}/ is in Git, and the run cache remembers raw data and own images, too: use `python -m pipeline "
            "publish` for it, or share with another remote"
        )


def _outputs(repo: Any, entries: Iterable[tuple[str, str]], without: Sequence[str]) -> set[Any]:
    """The hashes of all files that are outputs in these records of the run cache."""
    found: set[Any] = set()
    with chdir(repo.root_dir):  # DVC resolves the paths of a record against it
        for key, value in entries:
            record = repo.stage_cache._load_cache(key, value)
            for out in repo.stage_cache._create_stage(record).outs if record else ():
                if not any(PurePath(out.def_path).is_relative_to(place) for place in without):
                    found.update(*out.get_used_objs().values())
    return found
