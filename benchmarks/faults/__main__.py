"""`python -m benchmarks.faults`: spoil small reproductions at random and see whether anything is lost."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

ROOT = Path(__file__).parents[2]


@app.command()
def main(
    cases: Annotated[int, typer.Option(min=1, help="how many faults; the kinds take turns")] = 154,
    seed: Annotated[int, typer.Option(help="of the places and moments of all faults")] = 0,
    case: Annotated[list[int] | None, typer.Option(help="only these cases, by number")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="only these kinds of faults; --kind list names them")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="how many at once, each in a repository of its own")] = 1,
    mirror: Annotated[Path | None, typer.Option(help="folder with mnist/<files>, for faults of downloads")] = None,
    output: Annotated[Path | None, typer.Option(help="file of the report; reports/faults.json")] = None,
) -> None:
    """Damage, kill or cut off small reproductions, finish each, and compare with one that nothing happened to.

    About a minute a case. Exits with 1 if anything was lost or differs. Leave the machine as it is meanwhile: the
    moments are random shares of the time that a reproduction takes.
    """
    from tqdm import tqdm

    from benchmarks.faults import campaign
    from benchmarks.faults.repository import Repository
    from pipeline.commits import git_state
    from pipeline.files import write_json
    from pipeline.layout import faults_path

    if kind == ["list"]:
        print("\n".join(campaign.FAULTS))
        return
    kinds = kind or list(campaign.FAULTS)
    if unknown := [each for each in kinds if each not in campaign.FAULTS]:
        raise UserError(f"{', '.join(unknown)}: not among {', '.join(campaign.FAULTS)}")
    commit, dirty = git_state(ROOT)
    work = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
    repositories = [Repository(work / str(job), mirror.resolve() if mirror else None) for job in range(jobs)]
    chosen, left_out = campaign.possible(kinds, repositories[0])
    for each, why in left_out.items():
        print(f"not tried: {each}: {why}")
    done: list[campaign.Case] = []
    path = output or faults_path(ROOT)
    numbers = case or list(range(cases))
    try:
        with tqdm(campaign.run_cases(repositories, chosen, seed, numbers), total=len(numbers), unit="fault") as bar:
            for ended in bar:
                done.append(ended)
                bar.set_postfix(failed=sum(one.outcome in (campaign.DIFFERING, campaign.LOST) for one in done))
                tqdm.write(f"{ended.number}: {ended.kind}: {ended.detail}: {ended.outcome}")
                for name in ended.differing:
                    tqdm.write(f"    differs: {name}")
                if ended.message:
                    tqdm.write(ended.message)
    except KeyboardInterrupt:
        print("stopped: the report has the cases that ended")
    finally:
        shutil.rmtree(work, ignore_errors=True)
        found = campaign.report(done, left_out, seed, f"{commit}{' with changes' if dirty else ''}")
        if done and (output or not (case or kind)):
            write_json(path, found)
            print(f"written: {path}")
    print(
        f"{found['tried']} faults: {found['survived']} survived, {found['differing']} differing, {found['lost']} lost"
    )
    if found["survived"] < found["tried"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    try:
        app()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
