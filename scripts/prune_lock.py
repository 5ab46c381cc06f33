"""Remove from dvc.lock the items that dvc.yaml no longer has. DVC leaves them in, and reads and writes the whole file
for every item that it runs, so each line costs time.

    python scripts/prune_lock.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def prune(root: Path) -> list[str]:
    """Rewrite `dvc.lock` without the items that `dvc.yaml` no longer has. Returns their names."""
    from dvc.repo import Repo
    from dvc.utils.serialize import dump_yaml, load_yaml

    from pipeline.dependencies import Graph
    from pipeline.files import atomic_path

    path = root / "dvc.lock"
    known = {item.label for items in Graph.load(root).items.values() for item in items.values()}
    with Repo(str(root)) as repo, repo.lock:  # so that no reproduction records an item meanwhile
        content = load_yaml(str(path))
        gone = [label for label in content["stages"] if label not in known]
        for label in gone:
            del content["stages"][label]
        if gone:
            with atomic_path(path) as partial:
                dump_yaml(str(partial), content)
    return gone


if __name__ == "__main__":
    removed = prune(ROOT)
    print(f"{len(removed)} items removed: {', '.join(removed)}" if removed else "nothing to remove")
