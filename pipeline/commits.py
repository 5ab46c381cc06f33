"""The Git commit of the code, which is recorded with every result."""

import os
import subprocess
from pathlib import Path


def git_state(root: Path) -> tuple[str, bool]:
    """The commit, and whether there are uncommitted changes. Files that stages write (reports, dvc.lock) are ignored.

    If the environment variable `CAPSULES_COMMIT` is set, its value is used, and Git is not called. The value has the
    form of `git describe --always --dirty`. Returns ("unknown", True) if Git fails, if there is no commit, or if `root`
    is not the top folder of a repository.
    """
    if named := os.environ.get("CAPSULES_COMMIT"):
        return named.removesuffix("-dirty"), named.endswith("-dirty")
    ignored = (":(exclude)reports", ":(exclude)dvc.lock", ":(exclude)profiles/*/dvc.lock")
    try:
        if not Path(_git(root, "rev-parse", "--show-toplevel").strip()).samefile(root):
            return "unknown", True
        commit = _git(root, "rev-parse", "HEAD").strip()
        return commit, bool(_git(root, "status", "--porcelain", "--", ".", *ignored).strip())
    except (OSError, subprocess.SubprocessError):
        return "unknown", True


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "--no-optional-locks", *arguments]
    return os.fsdecode(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
