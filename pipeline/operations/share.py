"""Pushes to a DVC remote everything that DVC's run cache remembers.

`dvc push --run-cache` pushes all records of the run cache, but only those outputs that `dvc.lock` names and that are no
results kept in Git. A record restores a stage only where all its outputs are, so this pushes all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path, PurePath

from pipeline.errors import UserError
from pipeline.files import read_yaml
from pipeline.operations.publish import REMOTE


def share(root: Path, remote: str | None = None, without: Sequence[str] = ()) -> tuple[int, int]:
    """Push the run cache of the repository in `root`, and the outputs of its records, but for those of stages that make
    one of the folders or files `without`; returns how many records there are, and how many files were pushed now.

    Raises `UserError` if nothing is at a place in `without`, or if there is no such remote, it does not take all files,
    cannot have a run cache (one over HTTP), or is the folder of published results, which is in Git.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    for place in without:
        if not (root / place).exists():
            raise UserError(f"there is no {place} in {root}: nothing was pushed")
    try:
        with chdir(root), Repo() as repo, repo.lock:  # DVC resolves the paths of a record against the working folder
            if Path(repo.cloud.get_remote(remote).path).resolve() == Path(REMOTE).resolve():
                raise UserError(
                    f"{REMOTE}/ is in Git, and the run cache has raw data and own images, too: use `python -m pipeline "
                    "publish` for it, or share with another remote"
                )
            records = repo.stage_cache.push(remote)
            chosen = []
            for key, value in records:
                outs = read_yaml(Path(repo.stage_cache.cache_dir, key[:2], key, value))["outs"]
                if not any(PurePath(out["path"]).is_relative_to(place) for out in outs for place in without):
                    chosen.append((key, value))
            hashes = set().union(*repo.stage_cache.get_used_objs(chosen).values())
            result = repo.cloud.push(hashes, remote=remote)
    except (DvcException, OSError) as error:
        raise UserError(f"cannot push to the remote {remote or '(default)'}: {error}") from error
    if result.failed:
        raise UserError(f"{len(result.failed)} files could not be pushed")
    return len(records), len(result.transferred)
