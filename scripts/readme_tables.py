"""Update what README.md and reports/paper/README.md have from results.

    python scripts/readme_tables.py

reports/paper/README.md is made from the template beside it, in which numbers are expressions such as
`{{ at("evaluate/cnn-mnist test/centre") | percent(2) }}`. Its section "In short" and a table of claims also stand in
README.md, each between `<!-- made by scripts/readme_tables.py: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

if TYPE_CHECKING:
    from pipeline.results.freshness import ItemStatus
    from pipeline.results.reading import Results

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PROFILE = "paper"
_COUNTS = (
    "claims run",
    "agree",
    "of these at the document's setting",
    "better",
    "do not agree",
    "not tested or undecided",
)
README, FINDINGS = Path("README.md"), Path(f"reports/{PROFILE}/README.md")

_BLOCK = re.compile(r"(<!-- made by scripts/readme_tables\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def tables(root: Path) -> dict[str, list[str]]:
    """The lines of each table in Markdown, by the table's name."""
    from pipeline.layout import Layout
    from pipeline.profiles import Profiles
    from pipeline.results.reading import Results
    from pipeline.state import profile_items

    scorecard = json.loads((root / f"reports/{PROFILE}/scorecard.json").read_text(encoding="utf-8"))
    layout = Layout(root, PROFILE)
    items = profile_items(root, Profiles(root).params_path(PROFILE))
    return {
        "claims": claims(scorecard),
        "hours": hours(items, Results(layout.records_folder, layout.arrays_folder)),
    }


def claims(scorecard: Sequence[dict[str, Any]]) -> list[str]:
    """The lines of a table with a row for each document, then a row for all. Its columns are counts of claims.
    Claims that agree at the document's setting are counted again, because only they confirm the document.

    Args:
        scorecard: the rows of `scorecard.json`.
    """
    from pipeline.page.scorecard import TIERS, tier
    from pipeline.results.claims import DOCUMENTS

    def cells(rows: Sequence[dict[str, Any]]) -> list[str]:
        run = [row for row in rows if row["verdict"] != "not run"]
        agreeing = [row for row in run if row["verdict"] in ("within", "holds")]
        confirmed = sum(tier(row) == TIERS[0] for row in agreeing)
        better = sum(row["verdict"] == "better" for row in run)
        disagreeing = sum(row["verdict"] in ("worse", "fails") for row in run)
        open_ = len(run) - len(agreeing) - better - disagreeing
        counts = [len(agreeing), confirmed, better, disagreeing, open_]
        return [f"{len(run)} of {len(rows)}", *map(str, counts)]

    lines = _head("document", *_COUNTS, "data")
    for document, title in DOCUMENTS.items():
        rows = [row for row in scorecard if row["document"] == document]
        labels = [row["dataset"] for row in rows if row["dataset"]]
        data = dict.fromkeys(part for label in labels for part in label.split(", "))
        lines.append(_row(f"{title} (`{document}`)", *cells(rows), ", ".join(data)))
    return [*lines, _row("all", *cells(scorecard), "")]


def hours(items: Sequence[ItemStatus], results: Results) -> list[str]:
    """The lines of a table of hours: a row for the executed items per stage, commit and state, then a row for all."""
    from pipeline.results.freshness import recorded_hours

    groups: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for each in items:
        stage, _, item = each.label.partition("/")
        numbers = results.numbers(stage, item)
        if numbers is None:
            continue
        record = numbers.records[-1]
        named = item + _length(record["settings"]["runs"][item]) if stage == "train" else item
        groups.setdefault((stage, each.commit, each.state), []).append((named, recorded_hours(numbers) or 0.0))
    lines = _head("stage", "items", "hours", "commit", "state")
    for (stage, commit, state), found in groups.items():
        spent = sum(time for _, time in found)
        lines.append(_row(stage, ", ".join(item for item, _ in found), f"{spent:.1f}", commit, state))
    total = sum(time for found in groups.values() for _, time in found)
    return [*lines, _row("all", "", f"{total:.1f}", "", "")]


def _length(run: dict[str, Any]) -> str:
    seeds = f"{run['replicas']} seeds of " if run["replicas"] > 1 else ""
    return f" ({seeds}{run['training']['epochs']} epochs)"


def _head(*names: str) -> list[str]:
    return [_row(*names), _row(*("---:" if name in (*_COUNTS, "hours") else "---" for name in names))]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def updated(text: str, made: dict[str, list[str]]) -> str:
    """`text` with the tables in `made` (lines by name). Raises `KeyError` if the text names another table."""
    return _BLOCK.sub(lambda found: found[1] + "\n".join(made[found[2]]) + "\n" + found[3], text)


def at(place: str) -> float:
    """A number that was measured.

    Args:
        place: a claim of the scorecard, such as "004.t1.r3" (our number), or an item and the place of a number in its
            record, such as "evaluate/cnn-mnist test/centre" (the mean over seeds). After "sd " or "n ", the number is
            the sd or the number of seeds instead, after "paper ", the document's number.
    """
    kind, _, rest = place.partition(" ") if place.startswith(("paper ", "sd ", "n ")) else ("", "", place)
    rows = {row["id"]: row for row in _read("scorecard.json")}
    if rest in rows:
        return float(rows[rest]["paper"]["value"] if kind == "paper" else rows[rest]["ours"][kind or "value"])
    item, keys = rest.split(" ", 1)
    found = _read(f"results/{item}.json")["record"][-1]
    for key in keys.split("/"):
        found = found[key]
    return float(found[kind or "mean"] if isinstance(found, dict) else found)


def cell(table: str, column: str, **where: Any) -> float:
    """The mean of `column` over the rows of a table, such as "results/regression/grid-mnist.csv", that have the values
    `where` in the columns of these names. `KeyError` if there is no such row.
    """
    rows = _read(table)
    for name, value in where.items():
        rows = rows[rows[name] == value]
    if rows.empty:
        raise KeyError(f"{table}: no row with {where}")
    return float(rows[column].mean())


@cache
def _read(name: str) -> Any:
    path = ROOT / f"reports/{PROFILE}" / name
    return pd.read_csv(path) if path.suffix == ".csv" else json.loads(path.read_text(encoding="utf-8"))


def rendered(template: str, made: dict[str, list[str]]) -> str:
    """The text of a Jinja template with `at`, `cell`, the tables `made`, and the filters `fixed` and `percent`."""
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    environment.filters |= {
        "fixed": lambda number, digits=1: f"{number:,.{digits}f}",
        "percent": lambda share, digits=1: f"{100 * share:.{digits}f}",
    }
    lines = {name: "\n".join(each) for name, each in made.items()}
    return environment.from_string(template).render(at=at, cell=cell, **lines)


def texts(root: Path) -> dict[Path, str]:
    """The texts of both files as they should be."""
    made = tables(root)
    findings = rendered((root / FINDINGS).with_suffix(".md.j2").read_text(encoding="utf-8"), made)
    made["summary"] = findings.partition("## In short\n\n")[2].partition("\n\n## ")[0].splitlines()
    return {README: updated((root / README).read_text(encoding="utf-8"), made), FINDINGS: findings}


def main() -> None:
    """Rewrite the files that are not up to date, and name them."""
    for path, text in texts(ROOT).items():
        if (ROOT / path).read_text(encoding="utf-8") != text:
            (ROOT / path).write_text(text, encoding="utf-8")
            print(f"{path} updated")


if __name__ == "__main__":
    main()
