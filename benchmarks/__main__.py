"""`python -m benchmarks`: how fast, against what the machine can do and against references."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError, show_error

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

ROOT = Path(__file__).parents[1]
GROUPS = ("generative", "scae", "capsnet", "matrix-capsules", "free-form", "regression", "pipeline")


@app.command()
def main(
    groups: Annotated[list[str] | None, typer.Argument(help=f"{' or '.join(GROUPS)}; all by default")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    seconds: Annotated[float, typer.Option(min=1, help="how long to measure, about")] = 400.0,
    quick: Annotated[bool, typer.Option(help="seconds, tiny sizes: to see that it runs, not for the numbers")] = False,
    output: Annotated[Path | None, typer.Option(help="file that rows are merged into; reports/bench.json")] = None,
) -> None:
    """Measure, print a table, and merge the rows into a file by name and device.

    Every row says what the machine allows (its limit) and what it is compared with (its reference). Leave the machine
    alone meanwhile: everything else that runs on it is measured too.
    """
    chosen = groups or list(GROUPS)
    if unknown := [group for group in chosen if group not in GROUPS]:
        raise typer.BadParameter(f"{', '.join(unknown)}: not among {', '.join(GROUPS)}")

    from benchmarks import capsnet, free_form, generative, machine, matrix_capsules, overhead, regression, scae
    from benchmarks.rows import Row, merge, table
    from pipeline.commits import git_state
    from pipeline.compute import choose_device, describe, prepare

    where = choose_device(device)
    prepare(where)
    described = machine.describe_machine(where)
    total = min(seconds, 10.0) if quick else seconds
    share = total * 0.95 / len(chosen)
    rows: list[Row] = []
    notes: list[str] = []
    with machine.Budget(total) as budget:
        if {"generative", "scae", "matrix-capsules"} & set(chosen):
            copied, multiplied, found = machine.ceilings(where, 0.05 * total, budget, quick)
            rows += found
        if "generative" in chosen:
            rows += generative.measure(where, copied, multiplied, share, budget, quick)
        if "scae" in chosen:
            rows += scae.measure(where, multiplied, share, budget, quick)
        if "capsnet" in chosen:
            rows += capsnet.measure(where, share, budget, quick)
        if "matrix-capsules" in chosen:
            rows += matrix_capsules.measure(where, copied, share, budget, quick)
        if "free-form" in chosen:
            rows += free_form.measure(where, share, budget, quick)
        if "regression" in chosen:
            rows += regression.measure(where, share, budget, quick)
        if "pipeline" in chosen:
            rows += overhead.tracking(where, share, budget, quick)
            found, notes = overhead.commands(budget, quick)
            rows += found
    print(described, end="\n\n")
    print(table(rows))
    for note in notes:
        print(note)
    if quick and output is None:
        return  # numbers that mean nothing do not replace others
    path = output or ROOT / "reports" / "bench.json"
    commit, dirty = git_state(ROOT)
    merge(path, rows, describe(where), described, f"{commit}{' with changes' if dirty else ''}")
    print(f"\nmerged into {path}")


if __name__ == "__main__":
    try:
        app()
    except (UserError, OSError) as error:
        sys.exit(show_error(error))
