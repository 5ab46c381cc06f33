"""The tables of a profile: tidy numbers for programs (CSV), readable ones for people (Markdown and the page)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pipeline.drawing.table import Table
from pipeline.files import write_text
from pipeline.report import code_of

OUTCOMES = {
    "tried": "tried",
    "survived": "finished by the next `dvc repro`",
    "survived with advice": "after what a message said to do",
    "differing": "finished with other files",
    "lost": "not finished",
}
"""What became of faults that were caused, as `benchmarks.faults` counts it, and the headings."""


def write_tables(folder: Path, tables: Sequence[Table]) -> list[Path]:
    """Write each table as CSV and Markdown into `folder`, and return their paths; remove those of earlier calls. Raises
    `UserError`.
    """
    written = {folder / f"{table.name}.csv": table.to_csv() for table in tables}
    written |= {folder / f"{table.name}.md": table.to_markdown() for table in tables}
    for path, content in written.items():
        write_text(path, content)
    for path in {*folder.glob("*.csv"), *folder.glob("*.md")} - written.keys():
        path.unlink()
    return list(written)


def faults(path: Path) -> list[Table]:
    """A list with the table of a campaign's report, or an empty list if there is none."""
    if not path.exists():
        return []
    report = json.loads(path.read_text(encoding="utf-8"))
    data = pd.DataFrame.from_dict(report["by_kind"], orient="index")[list(OUTCOMES)].rename_axis("kind").reset_index()
    total = data.drop(columns="kind").sum().to_frame().T.assign(kind="all")
    shown = pd.concat([data, total]).astype(str).rename(columns={"kind": "fault", **OUTCOMES})
    caption = (
        f"After a fault, dvc repro finished {report['survived']} of {report['tried']} small reproductions with the "
        "same files, bit for bit, as one without a fault. Measured by python -m benchmarks.faults, commit "
        f"{report['commit'][:7]}."
    )
    return [Table("faults", "Faults during reproductions", caption, data, shown, [], code=code_of(faults))]
