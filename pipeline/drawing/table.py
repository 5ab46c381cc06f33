"""Tables in two forms, as data and as text, and functions that build them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pipeline.results.documents import setting_in_words
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, dataset_label, merged_provenance
from pipeline.results.reading import Numbers


@dataclass(frozen=True)
class Table:
    """A table in two forms.

    Attributes:
        name: file name without extension.
        data: the numbers, for the CSV file.
        shown: the table as text, for the page.
        records: provenance of every item in the table.
        document: number of the document that the table belongs to, such as "000"; empty if it belongs to none.
        code: file and function that build the table; empty if not known.
    """

    name: str
    title: str
    caption: str
    data: pd.DataFrame
    shown: pd.DataFrame
    records: list[Record]
    document: str = ""
    code: str = ""

    def to_csv(self) -> str:
        """`data` as CSV. Floats have six significant digits."""
        return self.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def sources(records: Sequence[Record]) -> str:
    """One line on the origin of a table or figure: items, data sets, tracked runs and commits."""
    merged = merged_provenance(records)
    parts = [", ".join(merged["items"]), dataset_label(records)]
    if merged["tracking_runs"]:
        parts.append(f"tracked as {', '.join(merged['tracking_runs'])}")
    if merged["commit"]:
        parts.append(f"commit {merged['commit']}")
    return "; ".join(part for part in parts if part)


def as_text(number: Measured | None, digits: int = 1) -> str:
    """A number as text, such as "93.1 ± 0.4": mean and sd with `digits` decimals, or only the mean if `n` is 1. Empty
    for None. If `sd` is a standard error, it is shown for any `n`, and both numbers have two decimals instead (three if
    the mean is below 0.095).
    """
    if number is None:
        return ""
    if number.standard_error:
        digits = 2 if number.mean >= 0.095 else 3
    mean = f"{number.mean:,.{digits}f}"
    return f"{mean} ± {number.sd:,.{digits}f}" if number.n > 1 or number.standard_error else mean


def in_words(settings: Mapping[str, Any]) -> str:
    """Changed settings as text, such as `object presence 0.1, seeding (images 10)`; `nothing` if there are none."""
    told = {
        name: f"({in_words(value)})" if isinstance(value, Mapping) else setting_in_words(value)
        for name, value in settings.items()
    }
    return ", ".join(f"{name.replace('_', ' ')} {words}" for name, words in told.items()) or "nothing"


def tracked(records: Sequence[Record]) -> str:
    return " ".join(merged_provenance(records)["tracking_runs"])


Row = tuple[Sequence[object], Mapping[str, Measured | None], Numbers]
"""One row: the values of its key columns, its numbers by column, and the result that the numbers come from."""
Heads = dict[str, tuple[str, int]]
"""For each column, its heading and its number of decimals."""


def cells(numbers: Numbers, heads: Heads, *place: str) -> dict[str, Measured | None]:
    """The number for each column of `heads`, found in `numbers` under the keys `place` and the column's name (without
    `_percent`). If the heading has "(%)", the number is multiplied by 100.
    """
    found: dict[str, Measured | None] = {}
    for column, (words, _) in heads.items():
        value = numbers.measured(*place, column.replace("_percent", ""))
        found[column] = value.scaled(100) if value and "(%)" in words else value
    return found


def measured_table(
    name: str, title: str, caption: str, keys: Sequence[str], heads: Heads, rows: Iterable[Row], error: str = "sd"
) -> list[Table]:
    """A list with one table of `rows`, or an empty list if there are no rows. `keys` are the names of the key columns.
    `error` is "sd" if the number after ± is the sd over seeds, "se" if it is a standard error.
    """
    data, shown = [], []
    records: list[Record] = []
    for values, measured, numbers in rows:
        row: dict[str, object] = dict(zip(keys, values, strict=True))
        text = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in row.items()}
        found = {column: measured[column] for column in heads}
        seeds = max((each.n for each in found.values() if each), default=0)
        text["seeds"] = str(seeds)
        for (column, each), (words, digits) in zip(found.items(), heads.values(), strict=True):
            row |= {column: each and each.mean, f"{column}_{error}": each and each.sd}
            text[words] = as_text(each, digits)
        row |= {"n": seeds, "dataset": dataset_label(numbers.records), "tracking_run": tracked(numbers.records)}
        records += numbers.records
        data.append(row)
        shown.append(text)
    if not data:
        return []
    spread = "sd over seeds" if error == "sd" else "standard error over images and seeds"
    caption = f"{caption} Numbers are mean ± {spread}, on {dataset_label(records)}."
    return [Table(name, title, caption, pd.DataFrame(data), pd.DataFrame(shown), records)]


def tables_of(
    name: str, title: str, caption: str, keys: Sequence[str], heads: Heads, rows: Mapping[str, Iterable[Row]]
) -> list[Table]:
    """A table for each group in `rows`, such as a data set. The table's name and title end with the group's name."""
    return [
        table
        for group, each in rows.items()
        for table in measured_table(f"{name}-{group}", f"{title}, {group}", caption, keys, heads, each)
    ]
