"""Result files for tests of reading: as short as the readers accept, below an empty folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.results.outcome import RECORD
from pipeline.results.reading import Results


class ResultFiles:
    """Writes the files of one profile below `root`."""

    def __init__(self, root: Path) -> None:
        self.results = Results(root / "records", root / "arrays")

    def numbers(self, stage: str, item: str, values: dict[str, Any], **provenance: Any) -> Path:
        """A record; `provenance` comes on top of stage and item."""
        content = values | {"provenance": [{"stage": stage, "item": item} | provenance]}
        return self.text(stage, item, json.dumps({RECORD: [content]}))

    def text(self, stage: str, item: str, content: str) -> Path:
        path = self.results.records / stage / f"{item}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
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
