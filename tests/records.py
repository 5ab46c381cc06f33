"""Files of results, for tests: the record inside, and a file around a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.results.outcome import RECORD


def load_record(path: Path) -> dict[str, Any]:
    """The record in a file that a stage wrote."""
    (record,) = json.loads(path.read_text(encoding="utf-8"))[RECORD]
    return record


def dump_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record as stages do, without headline numbers."""
    path.write_text(json.dumps({RECORD: [record]}), encoding="utf-8")
