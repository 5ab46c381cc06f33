"""What a finished reproduction consists of, without what differs from one run to the next: times and names of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.files import json_sha256, sha256

FOLDERS = ("data", "models", "results", "reports")
VARYING = ("record", "provenance", "seconds", "images_per_second", "tracking_run", "created")


def contents(folder: Path) -> dict[str, str]:
    """A hash of every file that stages wrote, by its path in the repository."""
    return {
        path.relative_to(folder).as_posix(): _hash(path)
        for name in FOLDERS
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and path.name != ".gitignore"
    }


def differences(folder: Path, reference: dict[str, str]) -> list[str]:
    """Files that are missing, left over or not the same as in the reference."""
    found = contents(folder)
    return sorted(name for name in {*found, *reference} if found.get(name) != reference.get(name))


def _hash(path: Path) -> str:
    try:
        if path.suffix == ".json":
            return json_sha256(_constant(json.loads(path.read_text(encoding="utf-8"))))
        if path.suffix == ".csv":
            import pandas as pd

            table = pd.read_csv(path)
            return json_sha256(table.drop(columns=[name for name in table if name in VARYING]).to_csv())
    except ValueError:
        return "damaged"
    return sha256(path)


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _constant(each) for key, each in value.items() if key not in VARYING}
    return [_constant(each) for each in value] if isinstance(value, list) else value
