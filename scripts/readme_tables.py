"""Update the tables in README.md and reports/paper/README.md that are made from results.

    python scripts/readme_tables.py

A table stands between `<!-- made by scripts/readme_tables.py: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
FILES = (Path("README.md"), Path(f"reports/{PROFILE}/README.md"))

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
    from pipeline.page.scorecard import TIERS, dataset_and_remarks, tier
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
        labels = [dataset_and_remarks(row)[0] for row in rows if row["dataset"]]
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


def main() -> None:
    """Rewrite the files that are not up to date, and name them."""
    made = tables(ROOT)
    for path in FILES:
        text = (ROOT / path).read_text(encoding="utf-8")
        new = updated(text, made)
        if new != text:
            (ROOT / path).write_text(new, encoding="utf-8")
            print(f"{path} updated")


if __name__ == "__main__":
    main()
