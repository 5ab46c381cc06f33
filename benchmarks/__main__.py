"""`python -m benchmarks`: times the code, and compares each duration with the least possible and with a reference."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.errors import UserError, show_error

if TYPE_CHECKING:
    from benchmarks.timing import Row

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

ROOT = Path(__file__).parents[1]


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help="beginnings of the rows' names; all by default")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    seconds: Annotated[float, typer.Option(min=1, help="how long to measure, about")] = 400.0,
    quick: Annotated[bool, typer.Option(help="seconds, tiny sizes: to see that it runs, not for the numbers")] = False,
    output: Annotated[Path | None, typer.Option(help="file that rows are merged into; reports/bench.json")] = None,
) -> None:
    """Measure, print a table, and merge the rows into a file by name and device.

    Every row says what its least possible duration is (its limit) and what it is compared with (its reference). Leave
    the machine alone meanwhile: everything else that runs on it is measured too.
    """
    import torch
    from tqdm import tqdm

    from benchmarks import commands, models
    from benchmarks.timing import measure
    from pipeline.commits import git_state
    from pipeline.compute import choose_device, describe, prepare

    rows = {**models.ROWS, **commands.ROWS}
    chosen = [name for name in rows if name.startswith(tuple(names or [""]))]
    if not chosen:
        raise UserError(f"no row begins so; there are {', '.join(rows)}")
    where = choose_device(device)
    prepare(where)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores before"
    machine = f"{describe(where)}, torch {torch.__version__}, {load}"
    measured: list[Row] = []
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in tqdm(chosen, unit="row", leave=False, disable=None):
            try:
                timed = rows[name](models.Where(where, Path(folder), quick))
                measured.append(measure(name, timed, where, 0.0 if quick else seconds / len(chosen)))
            except UserError as error:
                left_out.append(f"not measured: {name}: {error}")
    print("\n".join([machine, "", table(measured), *left_out]))
    if quick and output is None:
        return  # numbers that mean nothing do not replace others
    path = output or ROOT / "reports" / "bench.json"
    commit, dirty = git_state(ROOT)
    merge(path, measured, describe(where), machine, f"{commit}{' with changes' if dirty else ''}")
    print(f"\nmerged into {path}")


def merge(path: Path, rows: Sequence[Row], device: str, machine: str, commit: str) -> None:
    """Add `rows` to the JSON list in `path`. A row replaces an earlier row with the same name and device. Raises
    `UserError` if the file cannot be written.
    """
    from pipeline.files import write_json

    kept: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"device": device, "machine": machine, "commit": commit, "measured": measured}
    fresh = {(row.name, device): {**row.rounded(), **about} for row in rows}
    merged = [fresh.pop((row["name"], row["device"]), row) for row in kept]
    write_json(path, [*merged, *fresh.values()])


def table(rows: Sequence[Row]) -> str:
    """Text: a table of value, limit, share of the limit, reference and ratio; then what limits and references are."""
    import pandas as pd

    forms = {"limit": "{:.4g}", "share_of_limit": "{:.1%}", "reference": "{:.4g}", "ratio": "{:.2f} x"}
    cells = {"": [row.name for row in rows], "value": [f"{row.value:.4g} {row.unit}" for row in rows]}
    for name, form in forms.items():
        values = [getattr(row, name) for row in rows]
        cells[name.removesuffix("_of_limit")] = ["" if value is None else form.format(value) for value in values]
    said: dict[tuple[str, str], str] = {}  # equal texts are printed once
    for row in rows:
        for kind, what in (("limit", row.limit_is), ("reference", row.reference_is), ("measured", row.note)):
            if what:
                said.setdefault((kind, what), f"{row.name}, {kind}: {what}")
    return "\n".join([pd.DataFrame(cells).to_string(index=False), "", *said.values()])


if __name__ == "__main__":
    try:
        app()
    except (UserError, OSError) as error:
        sys.exit(show_error(error))
