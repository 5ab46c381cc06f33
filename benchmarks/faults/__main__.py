"""`python -m benchmarks.faults`: disturbs small reproductions at random, and checks that nothing is lost.

A case passes if `dvc repro` after the fault leaves exactly the files that a reproduction without a fault leaves. If it
fails, it runs again after DVC's run cache, which may have a damaged record, was deleted as docs/limits.md says.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.faults.kinds import FAULTS, leave_disk
from benchmarks.faults.repository import TARGETS, Repository, contents
from pipeline.commits import git_state
from pipeline.errors import UserError
from pipeline.files import write_json
from scripts.small_copy import ROOT

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

REPORT = ROOT / "reports" / "faults.json"

SURVIVED, ADVISED, DIFFERING, LOST = "survived", "survived with advice", "differing", "lost"
OUTCOMES = (SURVIVED, ADVISED, DIFFERING, LOST)
"""Outcomes in this order: `dvc repro` gives the same files, bit for bit; it does so after the run cache was
deleted; it gives other files; it fails.
"""


@dataclass(frozen=True)
class Case:
    """One fault and how it ended.

    Attributes:
        number: number of the case in its campaign. The fault depends on number, kind and seed only.
        differing: paths of files that differ from those of a reproduction without a fault.
        message: end of the output if the outcome is "lost"; else empty.
    """

    number: int
    kind: str
    detail: str
    outcome: str
    differing: tuple[str, ...] = ()
    message: str = ""


@app.command()
def main(
    cases: Annotated[int, typer.Option(min=1, help="how many faults; the kinds take turns")] = 90,
    seed: Annotated[int, typer.Option(help="of the places and moments of all faults")] = 0,
    case: Annotated[list[int] | None, typer.Option(help="only these cases, by number")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="only these kinds of faults")] = None,
    output: Annotated[Path | None, typer.Option(help="file of the report; reports/faults.json")] = None,
) -> None:
    """Damage, kill or cut off small reproductions, finish each, and compare with one that nothing happened to.

    About a minute a case. Exits with 1 if anything was lost or differs. Leave the machine as it is meanwhile: the
    moments are random shares of the time that a reproduction takes.
    """
    if unknown := set(kind or ()) - set(FAULTS):
        raise UserError(f"{', '.join(unknown)}: not among {', '.join(FAULTS)}")
    left_out = {name: why for name in kind or FAULTS if (why := FAULTS[name].missing)}
    chosen = [name for name in kind or FAULTS if name not in left_out]
    for name, why in left_out.items():
        print(f"not tried: {name}: {why}")
    commit, dirty = git_state(ROOT)
    work = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
    done: list[Case] = []
    try:
        repository = Repository(work)
        for number in case or range(cases):
            ended = run_case(repository, number, chosen[number % len(chosen)], seed)
            done.append(ended)
            said = [f"{number}: {ended.kind}: {ended.detail}: {ended.outcome}", *ended.differing, ended.message]
            print(*filter(None, said), sep="\n    ", flush=True)
    except KeyboardInterrupt:
        print("stopped: the report has the cases that ended")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    found = report(done, left_out, seed, f"{commit}{' with changes' if dirty else ''}")
    if done and (output or not (case or kind)):
        write_json(output or REPORT, found)
        print(f"written: {output or REPORT}")
    print(*(f"{name}: {found[name]}" for name in ("tried", "survived", "differing", "lost")), sep=", ")
    if found["survived"] < found["tried"]:
        raise typer.Exit(1)


def run_case(repository: Repository, number: int, kind: str, seed: int) -> Case:
    """Make one fault, finish the reproduction, and compare its files with those of a reproduction without a fault."""
    try:
        repository.begin(FAULTS[kind].state)
        detail = FAULTS[kind].apply(repository, random.Random(f"{seed}/{number}/{kind}"))
        code, output, advised = finish(repository)
        if code:
            return Case(number, kind, detail, LOST, message=output[-1500:])
        ours, reference = contents(repository.folder), repository.reference
        differing = sorted(name for name in {*ours, *reference} if ours.get(name) != reference.get(name))
        outcome = DIFFERING if differing else ADVISED if advised else SURVIVED
        return Case(number, kind, detail, outcome, tuple(differing))
    finally:
        leave_disk(repository)


def finish(repository: Repository) -> tuple[int, str, bool]:
    """Reproduce; if this fails, delete DVC's run cache and repeat. Returns exit code, output, and whether it failed."""
    code, output = repository.reproduce()
    if advised := bool(code):
        shutil.rmtree(repository.folder / ".dvc/cache/runs", ignore_errors=True)
        code, output = repository.reproduce()
    if not code:  # DVC must also find everything up to date afterwards
        _, again = repository.call("dvc", "status", *TARGETS)
        code, output = (0, output) if "up to date" in again else (1, f"{output}\n{again}")
    return code, output, advised


def report(cases: Sequence[Case], left_out: dict[str, str], seed: int, commit: str) -> dict[str, Any]:
    """The content of `reports/faults.json`."""
    survived = [case for case in cases if case.outcome in (SURVIVED, ADVISED)]
    by_kind: dict[str, dict[str, int]] = {}
    for case in sorted(cases, key=lambda each: each.number):
        counts = by_kind.setdefault(case.kind, dict.fromkeys(("tried", *OUTCOMES), 0))
        counts["tried"] += 1
        counts[case.outcome] += 1
    return {
        "tried": len(cases),
        "survived": len(survived),
        "with_advice": sum(case.outcome == ADVISED for case in cases),
        "differing": sum(case.outcome == DIFFERING for case in cases),
        "lost": sum(case.outcome == LOST for case in cases),
        "by_kind": by_kind,
        "not_tried": left_out,
        "failures": [asdict(case) for case in cases if case not in survived],
        "seed": seed,
        "commit": commit,
    }


if __name__ == "__main__":
    try:
        app()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
