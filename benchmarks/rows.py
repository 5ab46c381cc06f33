"""The rows of `reports/bench.json`: a measured value beside what the machine allows and beside a reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.files import write_json


@dataclass(frozen=True)
class Row:
    """One measured number.

    Attributes:
        name: what was measured; with the device it identifies the row.
        limit: the best value possible, or the most allowed, in `unit`; `limit_is` says which, and how it was found.
        share_of_limit: how much of the possible is reached (1 is all of it); of an allowance, how much is used up.
        reference: the value compared with, in `unit`; `reference_is` says what it is.
        ratio: how many times as good as the reference (above 1 is better).
        note: how it was measured.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    share_of_limit: float | None = None
    reference: float | None = None
    ratio: float | None = None
    limit_is: str = ""
    reference_is: str = ""
    note: str = ""


@dataclass(frozen=True)
class Mark:
    """A number to compare with, and what it is."""

    value: float
    what: str


def rate(
    name: str, value: float, unit: str, limit: Mark | None = None, reference: Mark | None = None, note: str = ""
) -> Row:
    """A row of which more is better."""
    share = value / limit.value if limit else None
    return _row(name, value, unit, limit, share, reference, value / reference.value if reference else None, note)


def duration(
    name: str, value: float, unit: str, limit: Mark | None = None, reference: Mark | None = None, note: str = ""
) -> Row:
    """A row of which less is better; its limit is the least possible."""
    share = limit.value / value if limit else None
    return _row(name, value, unit, limit, share, reference, reference.value / value if reference else None, note)


def allowance(name: str, value: float, unit: str, most: Mark, note: str = "") -> Row:
    """A row that must stay below a limit that people have set."""
    return _row(name, value, unit, most, value / most.value, None, None, note)


def _row(
    name: str,
    value: float,
    unit: str,
    limit: Mark | None,
    share: float | None,
    reference: Mark | None,
    ratio: float | None,
    note: str,
) -> Row:
    def short(number: float | None) -> float | None:
        return None if number is None else float(f"{number:.4g}")

    return Row(
        name,
        float(f"{value:.4g}"),
        unit,
        short(limit.value if limit else None),
        short(share),
        short(reference.value if reference else None),
        short(ratio),
        limit.what if limit else "",
        reference.what if reference else "",
        note,
    )


def merge(path: Path, rows: Sequence[Row], device: str, machine: str, commit: str) -> list[dict[str, Any]]:
    """Add `rows` to those in `path`, in place of earlier ones of the same name and device; returns all of them.

    Raises:
        UserError: the file holds something else.
        FileWriteError: it cannot be written.
    """
    kept = _read(path)
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    where = {"device": device, "machine": machine, "commit": commit, "measured": measured}
    fresh = {(row.name, device): {**asdict(row), **where} for row in rows}
    merged = [fresh.pop((row["name"], row["device"]), row) for row in kept]
    merged += fresh.values()
    write_json(path, merged)
    return merged


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        if all("name" in row and "device" in row for row in rows):
            return list(rows)
    except (ValueError, TypeError):
        pass
    raise UserError(f"{path} does not hold rows of earlier benchmarks: move it away first")


def table(rows: Sequence[Row]) -> str:
    """The rows for reading: value, limit and share, reference and ratio."""
    lines = [("", "value", "limit", "share", "reference", "ratio")]
    lines += [
        (
            row.name,
            f"{row.value:.4g} {row.unit}",
            _number(row.limit, "{:.4g}"),
            _number(row.share_of_limit, "{:.1%}"),
            _number(row.reference, "{:.4g}"),
            _number(row.ratio, "{:.2f} x"),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = []
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join([*text, "", *_explanations(rows)])


def _explanations(rows: Sequence[Row]) -> list[str]:
    """What the limits, references and values are, each said once."""
    said: dict[tuple[str, str], str] = {}
    for row in rows:
        for kind, what in (("limit", row.limit_is), ("reference", row.reference_is), ("measured", row.note)):
            if what and (kind, what) not in said:
                said[kind, what] = f"{row.name}, {kind}: {what}"
    return list(said.values())


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
