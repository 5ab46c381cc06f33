"""Files of results, as short as their readers accept: the record inside, a file around a record, a whole profile."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.results.outcome import RECORD
from pipeline.results.reading import Results


def changed(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of nested values with another one at `path`, its keys with slashes between."""
    found = copy.deepcopy(values)
    *way, last = path.split("/")
    at: Any = found
    for key in way:
        at = at[int(key) if isinstance(at, list) else key]
    at[last] = value
    return found


def load_record(path: Path) -> dict[str, Any]:
    """The record in a file that a stage wrote."""
    (record,) = json.loads(path.read_text(encoding="utf-8"))[RECORD]
    return record


def tracked_events(folder: Path) -> list[dict[str, Any]]:
    """What the journals in a folder hold, one run after the other."""
    journals = sorted(folder.glob("*/events.jsonl"))
    return [json.loads(line) for path in journals for line in path.read_text(encoding="utf-8").splitlines() if line]


def dump_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record as stages do, without headline numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({RECORD: [record]}), encoding="utf-8")


class ResultFiles:
    """Writes the files of one profile below two folders: records with tables, and arrays."""

    def __init__(self, records: Path, arrays: Path) -> None:
        self.results = Results(records, arrays)

    def numbers(self, stage: str, item: str, values: dict[str, Any], **provenance: Any) -> Path:
        """A record; `provenance` comes on top of stage and item."""
        path = self.results.records / stage / f"{item}.json"
        dump_record(path, values | {"provenance": [{"stage": stage, "item": item} | provenance]})
        return path

    def table(self, stage: str, item: str, table: pd.DataFrame) -> Path:
        path = self.results.records / stage / f"{item}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, index=False)
        return path

    def examples(self, stage: str, item: str, **arrays: np.ndarray) -> Path:
        path = self.results.arrays / stage / item / "examples.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)
        return path
