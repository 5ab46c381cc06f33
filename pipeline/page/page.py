"""The page: one self-contained HTML file with the claims, the figures and the tables of a profile.

It contains everything it shows and needs no network and no server: figures are data URIs, styles and scripts are
inline. Without scripts everything can be read, and the filters (plain CSS) work; `page.js` adds sorting, search and the
state in the address, `tables.js` sorts tables, and `films.js` shows pictures by a slider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.drawing.table import Table
from pipeline.page.cards import MARKS, bar, by_reason, cards, commits, origin_of, tier_key, tier_place
from pipeline.page.images import Shown, front_picture
from pipeline.page.scorecard import TIERS, Row, count_verdicts
from pipeline.report import model_table
from pipeline.results.claims import DOCUMENTS, Claim
from pipeline.results.freshness import CHANGED, DRAFT, GONE
from pipeline.results.provenance import Record, merged_provenance, unique

TEMPLATE = "page.html.j2"
_FOLDER = Path(__file__).parent

NOTICES = {
    CHANGED: ("result was", "results were", "made with other settings than this profile has now"),
    DRAFT: ("result is a draft", "results are drafts", "made from uncommitted changes: no claim is answered by drafts"),
    GONE: ("result is", "results are", "no longer in this profile"),
}
"""The page's words for results that do not belong to the profile: singular, plural, and what is wrong with them."""

_SCALE = 1.25
"""Size of figures on the page; in print they are smaller."""
_FEW = 12
"""Maximum number of items that a notice shows at once; longer lists open on a click."""


def build_page(
    rows: Sequence[Row],
    claims: Sequence[Claim],
    profile: str,
    figures: Sequence[Shown],
    tables: Sequence[Table],
    missing: Sequence[str],
    others: Mapping[str, str],
    *,
    incomplete: Sequence[str] = (),
    scorecards: Mapping[str, Sequence[Row]] | None = None,
    repository: str | None = None,
) -> str:
    """The page as HTML. It depends on the results alone: the same results give the same page.

    Args:
        rows: the scorecard, one row per claim in the order of `claims`.
        missing: `<stage>/<item>` of the profile's items that were not executed.
        others: `<stage>/<item>` of results that do not belong to the profile as it is now, with the reason in words
            (`freshness.compare`). Figures, tables and claims that use one are marked.
        incomplete: executed items whose arrays or tables were missing when the figures were drawn.
        scorecards: of other profiles, to be shown beside this one's.
        repository: address of the repository, for links to commits and code; without it, code is linked by its file.
    """
    records = [record for table in tables for record in table.records]
    scorecards = scorecards or {}
    all_cards = cards(rows, claims, profile, others, scorecards, repository)
    counts = count_verdicts(rows)
    numbers = unique(row["document"] for row in rows)
    scripts = ["page.js"]
    scripts += ["films.js"] if any(each.drawing.film for each in figures) else []
    scripts += ["tables.js"] if any(table.sort is not None for table in tables) else []
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"tier_key": tier_key, "tier_place": tier_place}
    shown_figures = [_figure(each, others, repository) for each in figures]
    shown_tables = [_table(each, others, repository) for each in tables]
    return environment.get_template(TEMPLATE).render(
        profile=profile,
        profiles=list(scorecards),
        style=_content("page.css"),
        scripts=[_content(name) for name in scripts],
        dates=_dates(records),
        datasets=unique(each.get("dataset") for each in records),
        devices=unique(each.get("device") for each in records),
        commits=commits(merged_provenance(records)["commit"], repository),
        marks=MARKS,
        tiers=TIERS,
        counts={name: row for name, row in counts.items() if any(row.values())},
        totals={verdict: sum(row[verdict] for row in counts.values()) for verdict in MARKS},
        claims=len(rows),
        bar=bar(row["verdict"] for row in rows),
        documents=[_document(number, all_cards, figures, shown_figures, shown_tables) for number in numbers],
        figures=[each for each in shown_figures if not each["document"]],
        tables=[each for each in shown_tables if not each["document"]],
        models=sum(len(table.shown) for table in tables if table.name == model_table.NAME),
        notices=_notices(missing, others, incomplete),
    )


def _content(name: str) -> str:
    """A style sheet or script of this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def _document(
    number: str,
    all_cards: Sequence[Mapping[str, Any]],
    figures: Sequence[Shown],
    shown_figures: Sequence[Mapping[str, Any]],
    shown_tables: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """A document with its claims, its figures and its tables."""
    chosen = [card for card in all_cards if card["claim"].document == number]
    return {
        "number": number,
        "title": DOCUMENTS.get(number, ""),
        "cards": chosen,
        "run": sum(card["own"]["verdict"] != "not run" for card in chosen),
        "bar": bar(card["own"]["verdict"] for card in chosen),
        "picture": front_picture(each for each in figures if each.drawing.document == number),
        "figures": [each for each in shown_figures if each["document"] == number],
        "tables": [each for each in shown_tables if each["document"] == number],
    }


def _figure(shown: Shown, others: Mapping[str, str], repository: str | None) -> dict[str, Any]:
    drawing = shown.drawing
    return {
        "id": f"figure-{drawing.name}",
        "document": drawing.document,
        "uri": shown.uri,
        "width": round(_SCALE * shown.width),
        "title": drawing.title,
        "caption": drawing.caption,
        "alt": drawing.alt,
        "code": _address(drawing.code, repository),
        "film": in_script(drawing.film),
        "origin": origin_of(drawing.records, repository),
        "differing": _differing(drawing.records, others),
    }


def in_script(text: str) -> str:
    """JSON as it can stand in a script element, which it cannot end."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _table(table: Table, others: Mapping[str, str], repository: str | None) -> dict[str, Any]:
    return {
        "id": f"table-{table.name}",
        "document": table.document,
        "title": table.title,
        "caption": table.caption,
        "head": list(table.shown.columns),
        "rows": table.shown.to_numpy().tolist(),
        "keys": None if table.sort is None else _keys(table.sort),
        "code": _address(table.code, repository),
        "origin": origin_of(table.records, repository),
        "differing": _differing(table.records, others),
    }


def _address(code: str, repository: str | None) -> str:
    """The address of a place in the code: in the repository's page, or as the files lie beside each other."""
    return code and (f"{repository}/blob/HEAD/{code}" if repository else f"../../{code}")


def _keys(sort: pd.DataFrame) -> list[list[Any]]:
    """What the cells of a table are sorted by; empty text for what comes last."""
    return [["" if pd.isna(key) else key for key in row] for row in sort.astype(object).to_numpy().tolist()]


def _notices(missing: Sequence[str], others: Mapping[str, str], incomplete: Sequence[str]) -> list[dict[str, Any]]:
    """Notices about the results as a whole: a sentence, the items it is about, and whether they are shown at once."""
    groups = [
        (list(missing), "item of this profile was", "items of this profile were", "not executed"),
        *(([label for label, reason in others.items() if reason == why], *words) for why, words in NOTICES.items()),
        (
            list(incomplete),
            "result has",
            "results have",
            "no arrays or table here: their figures were drawn earlier, or are missing",
        ),
    ]
    return [
        {
            "words": f"{len(items)} {one if len(items) == 1 else several} {what}",
            "items": items,
            "open": len(items) <= _FEW,
        }
        for items, one, several, what in groups
        if items
    ]


def _differing(records: Sequence[Record], others: Mapping[str, str]) -> list[tuple[str, str]]:
    return by_reason(merged_provenance(records)["items"], others)


def _dates(records: Iterable[Record]) -> str:
    """The days of the first and the last result, such as "2025-11-02 to 2025-11-03"; empty without results."""
    days = sorted(str(each["created"])[:10] for each in records if each.get("created"))
    return " to ".join(unique([days[0], days[-1]])) if days else ""
