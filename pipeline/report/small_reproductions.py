"""Builds the table of the fault campaign: how small reproductions ended after faults. It uses no profile."""

import json

import pandas as pd

from pipeline.drawing.table import Table
from pipeline.layout import faults_path
from pipeline.results.reading import Results

OUTCOMES = {
    "tried": "tried",
    "survived": "finished by the next `dvc repro`",
    "survived with advice": "after what a message said to do",
    "differing": "finished with other files",
    "lost": "not finished",
}
"""Headings of the table, by the name of the outcome in the report of `benchmarks.faults`."""


def build(results: Results) -> list[Table]:
    """A list with one table, a row for each kind of fault. An empty list if there is no report of the campaign."""
    path = faults_path(results.records.parents[2])
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
    return [Table("faults", "Faults during reproductions", caption, data, shown, [])]
