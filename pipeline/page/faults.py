"""What became of the faults that `python -m benchmarks.faults` caused, as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from pipeline.drawing.table import Table
from pipeline.results.reading import ResultError

COLUMNS = {
    "tried": "tried",
    "survived": "finished by the next `dvc repro`",
    "survived with advice": "after what a message said to do",
    "differing": "finished with other files",
    "lost": "not finished",
}
"""The outcomes that the report counts, and their headings."""


def build(path: Path) -> list[Table]:
    """A list with the table of a campaign's report, or an empty list if there is none.

    Raises:
        ResultError: the report is corrupt.
    """
    if not path.exists():
        return []
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        kinds = {str(kind): [int(counts[each]) for each in COLUMNS] for kind, counts in report["by_kind"].items()}
        tried, survived, commit = int(report["tried"]), int(report["survived"]), str(report["commit"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(f"{path} is corrupt ({error}): run `python -m benchmarks.faults` again") from error
    caption = (
        f"After a fault, `dvc repro` finished {survived} of {tried} small reproductions with the same files, bit for "
        f"bit, as one without a fault. Measured by `python -m benchmarks.faults`, commit {commit}."
    )
    data = pd.DataFrame([[kind, *counts] for kind, counts in kinds.items()], columns=["kind", *COLUMNS])
    total = [sum(counts[place] for counts in kinds.values()) for place in range(len(COLUMNS))]
    rows = [[kind, *map(str, counts)] for kind, counts in [*kinds.items(), ("all", total)]]
    shown = pd.DataFrame(rows, columns=["fault", *COLUMNS.values()])
    return [Table("faults", "Faults during reproductions", caption, data, shown, [])]
