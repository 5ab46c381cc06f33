"""The page: one self-contained HTML file with the claims, the figures and the tables of a profile.

The file needs no network and no server. Figures are data URIs; styles and scripts are inline. Without scripts,
everything can be read, and the filters (plain CSS) work. `page.js` sorts and searches claims and keeps the state in the
address. `tables.js` sorts tables. `films.js` shows pictures by a slider.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.drawing.drawings import Picture
from pipeline.drawing.table import Table
from pipeline.page.cards import MARKS, bar, cards, commits, origin
from pipeline.page.figures import front_picture
from pipeline.page.scorecard import TIERS, Row, count_verdicts
from pipeline.report import model_table
from pipeline.results.claims import DOCUMENTS, Claim
from pipeline.results.freshness import by_reason
from pipeline.results.provenance import dataset_label, merged_provenance, unique

_FOLDER = Path(__file__).parent

_AWAY = "arrays or table not on this machine: their figures are of an earlier run, or missing"


def build_page(
    rows: Sequence[Row],
    claims: Sequence[Claim],
    profile: str,
    figures: Sequence[Picture],
    tables: Sequence[Table],
    differing: Mapping[str, str],
    incomplete: Sequence[str] = (),
    scorecards: Mapping[str, Sequence[Row]] | None = None,
    repository: str = "",
) -> str:
    """The page as HTML; the same arguments give the same page.

    Args:
        rows: the scorecard, one row per claim in the order of `claims`.
        differing: why results are missing or differ from the current profile, in words, by `<stage>/<item>`
            (`freshness.compare`). Figures, tables and claims that use such a result are marked.
        incomplete: executed items whose arrays or tables were missing when the figures were drawn.
        scorecards: scorecards of other profiles by profile, shown beside this profile's scorecard.
        repository: web address for links to commits and code. If it is empty, links to code are relative paths.
    """
    records = [record for table in tables for record in table.records]
    all_cards = cards(rows, claims, profile, differing, scorecards or {})
    counts = {name: row for name, row in count_verdicts(rows).items() if any(row.values())}
    days = sorted(str(each["created"])[:10] for each in records if each.get("created"))
    documents = []
    for number in unique(row["document"] for row in rows):
        chosen = [card for card in all_cards if card["claim"].document == number]
        own = [each for each in figures if each.document == number]
        documents.append(
            {
                "number": number,
                "title": DOCUMENTS.get(number, ""),
                "cards": chosen,
                "run": sum(card["own"]["verdict"] != "not run" for card in chosen),
                "bar": bar(card["own"]["verdict"] for card in chosen),
                "picture": front_picture(own),
                "figures": own,
                "tables": [each for each in tables if each.document == number],
            }
        )
    names = ("page.css", "page.js", "films.js", "tables.js")
    style, *scripts = [(_FOLDER / name).read_text(encoding="utf-8") for name in names]
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, **options)
    filters: dict[str, Callable[..., Any]] = {
        "tier_key": lambda tier: tier.split()[0].replace("'", "") if tier else "none",
        "in_script": lambda text: text.replace("<", "\\u003c"),  # so that JSON cannot close the element
        "origin": lambda records: origin(merged_provenance(records), dataset_label(records)),
        "differing": lambda records: by_reason(merged_provenance(records)["items"], differing),
    }
    environment.filters |= filters
    return environment.get_template("page.html.j2").render(
        profile=profile,
        repository=repository,
        profiles=list(scorecards or {}),
        style=style,
        scripts=scripts,
        dates=" to ".join(dict.fromkeys([*days[:1], *days[-1:]])),
        datasets=unique(each.get("dataset") for each in records),
        devices=unique(each.get("device") for each in records),
        commits=commits(merged_provenance(records)["commit"]),
        marks=MARKS,
        tiers=TIERS,
        counts=counts,
        totals={verdict: sum(row[verdict] for row in counts.values()) for verdict in MARKS},
        claims=len(rows),
        bar=bar(row["verdict"] for row in rows),
        documents=documents,
        figures=[each for each in figures if not each.document],
        tables=[each for each in tables if not each.document],
        absent=model_table.NOT_MEASURED,
        models=sum(len(table.shown) for table in tables if table.name == model_table.NAME),
        notices=by_reason(differing, differing) | ({_AWAY: list(incomplete)} if incomplete else {}),
    )
