"""The page: one self-contained HTML file with the scorecard, the figures and the tables of a profile.

It contains everything it shows and needs no network and no server: figures are data URIs, the style sheet is inline,
the scorecard's filter is plain CSS, and a content security policy makes the browser block everything else.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.drawing.drawings import Picture
from pipeline.drawing.style import DPI
from pipeline.drawing.table import Table
from pipeline.page.scorecard import VERDICTS, Row, Verdict, count_verdicts, dataset_and_remarks
from pipeline.results.claims import DOCUMENTS, Claim
from pipeline.results.findings import NOT_THE_PAPERS_DATA
from pipeline.results.freshness import CHANGED, DRAFT, GONE
from pipeline.results.reading import Record, ResultError, dataset_label, merged_provenance, unique

TEMPLATE = "page.html.j2"

MARKS: dict[Verdict, tuple[str, str]] = {
    "within": ("●", "good"),
    "better": ("▲", "good"),
    "worse": ("▼", "bad"),
    "holds": ("✓", "good"),
    "fails": ("✗", "bad"),
    "not run": ("○", "none"),
}
"""Each verdict's mark and tone. The mark's shape and the word next to it make the verdict clear without colour."""

NOTICES = {
    CHANGED: ("result was", "results were", "made with other settings than this profile has now"),
    DRAFT: ("result is a draft", "results are drafts", "made from uncommitted changes: no claim is answered by drafts"),
    GONE: ("result is", "results are", "no longer in this profile"),
}
"""The page's words for results that do not belong to the profile: singular, plural, and what is wrong with them."""

_FEW = 12
"""Maximum number of items that a notice shows at once; longer lists open on a click."""
_SHORT = 10  # maximum length of a unit that fits next to its number
_PIXELS_PER_INCH = 96  # by the definition of a CSS pixel


@dataclass(frozen=True)
class Shown:
    """A figure on the page: what was drawn, the image as a data URI, its width in CSS pixels."""

    drawing: Picture
    uri: str
    width: int


def load_figures(folder: Path, drawings: Iterable[Picture]) -> list[Shown]:
    """Load the image files of the figures from `folder`.

    Raises:
        ResultError: a file is missing or corrupt; it is named.
    """
    return [_load_figure(folder / drawing.file, drawing) for drawing in drawings]


def _load_figure(path: Path, drawing: Picture) -> Shown:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}. Draw the figures (again).") from None
    if drawing.kind == "png":
        if len(content) < 24 or not content.startswith(b"\x89PNG"):
            raise ResultError(f"{path} is corrupt: not a PNG image. Draw the figures again.")
        width = struct.unpack(">I", content[16:20])[0] / DPI * _PIXELS_PER_INCH
        media = "png"
    else:
        points = re.search(rb'<svg[^>]* width="([\d.]+)pt"', content)
        if points is None:
            raise ResultError(f"{path} is corrupt: not an SVG image with a known width. Draw the figures again.")
        width = float(points[1]) / 72 * _PIXELS_PER_INCH
        media = "svg+xml"
    return Shown(drawing, f"data:image/{media};base64,{base64.b64encode(content).decode()}", round(width))


def build_page(
    rows: Sequence[Row],
    claims: Sequence[Claim],
    profile: str,
    figures: Sequence[Shown],
    tables: Sequence[Table],
    missing: Sequence[str],
    others: Mapping[str, str],
    *,
    without_arrays: Sequence[str] = (),
) -> str:
    """The page as HTML. It depends on the results alone: the same results give the same page.

    Args:
        rows: the scorecard, one row per claim in the order of `claims`.
        missing: `<stage>/<item>` of the profile's items that were not executed.
        others: `<stage>/<item>` of results that do not belong to the profile as it is now, with the reason in words
            (`freshness.compare`). Figures, tables and claims that use one are marked.
        without_arrays: executed items whose arrays were missing when the figures were drawn.
    """
    records = [record for table in tables for record in table.records]
    created = sorted(str(each["created"]) for each in records if each.get("created"))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    counts = count_verdicts(rows)
    cards = [_card(row, claim, others) for row, claim in zip(rows, claims, strict=True)]
    documents = [
        {
            "number": number,
            "title": DOCUMENTS.get(number, ""),
            "cards": chosen,
            "run": sum(card["verdict"] != "not run" for card in chosen),
        }
        for number in unique(row["document"] for row in rows)
        for chosen in [[card for card in cards if card["document"] == number]]
    ]
    return environment.get_template(TEMPLATE).render(
        profile=profile,
        created=unique([_minute(created[0]), _minute(created[-1])]) if created else [],
        datasets=unique(each.get("dataset") for each in records),
        devices=unique(each.get("device") for each in records),
        commit=merged_provenance(records)["commit"],
        verdicts=VERDICTS,
        marks=MARKS,
        counts={name: row for name, row in counts.items() if any(row.values())},
        totals={verdict: sum(row[verdict] for row in counts.values()) for verdict in VERDICTS},
        documents=documents,
        claims=len(rows),
        figures=[
            {
                "id": f"figure-{each.drawing.name}",
                "uri": each.uri,
                "width": each.width,
                "dataset": dataset_label(each.drawing.records),
                "provenance": _provenance(merged_provenance(each.drawing.records)),
                "differing": _differing(each.drawing.records, others),
                "title": each.drawing.title,
                "caption": each.drawing.caption,
                "alt": each.drawing.alt,
            }
            for each in figures
        ],
        tables=[
            {
                "id": f"table-{table.name}",
                "title": table.title,
                "caption": table.caption,
                "head": list(table.shown.columns),
                "rows": table.shown.to_numpy().tolist(),
                "dataset": dataset_label(table.records),
                "provenance": _provenance(merged_provenance(table.records)),
                "differing": _differing(table.records, others),
            }
            for table in tables
        ],
        notices=_notices(missing, others, without_arrays),
    )


def _notices(missing: Sequence[str], others: Mapping[str, str], without_arrays: Sequence[str]) -> list[dict[str, Any]]:
    """Notices about the results as a whole: a sentence, the items it is about, and whether they are shown at once."""
    groups = [
        (list(missing), "item of this profile was", "items of this profile were", "not executed"),
        *(([label for label, reason in others.items() if reason == why], *words) for why, words in NOTICES.items()),
        (
            list(without_arrays),
            "result has",
            "results have",
            "no arrays here: such figures were drawn earlier, or are missing",
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
    return _by_reason(merged_provenance(records)["items"], others)


def _by_reason(items: Iterable[str], others: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each reason why results do not belong to the profile, with those of `items` that it applies to."""
    reasons: dict[str, list[str]] = {}
    for item in items:
        if item in others:
            reasons.setdefault(others[item], []).append(item)
    return [(reason, ", ".join(found)) for reason, found in reasons.items()]


def _card(row: Row, claim: Claim, others: Mapping[str, str]) -> dict[str, Any]:
    """A row of the scorecard as text."""
    dataset, remarks = dataset_and_remarks(row)
    ours, paper = row["ours"], row["paper"]
    mark, tone = MARKS[row["verdict"]]
    foreign = any(remark.startswith(NOT_THE_PAPERS_DATA) for remark in remarks)
    aside = "on other data" if foreign else "at other settings" if remarks else ""
    return {
        "id": row["id"],
        "document": row["document"],
        "where": row["where"],
        "claim": row["claim"],
        "holds_when": claim.holds_when,
        "unit": "" if claim.unit == "%" or len(claim.unit) > _SHORT else claim.unit,
        "long_unit": claim.unit if len(claim.unit) > _SHORT else "",
        "paper": "" if paper["value"] is None else _spread(paper["value"], paper["sd"], claim),
        "ours": "" if ours is None else _spread(ours["value"], ours["sd"] if ours["n"] > 1 else None, claim),
        "seeds": "" if ours is None else str(ours["n"]),
        "dataset": dataset,
        "remarks": remarks,
        "notes": row["notes"],
        "verdict": row["verdict"],
        "aside": aside,
        "mark": mark,
        "tone": tone,
        "differing": _by_reason(row["other_settings"], others),
        "provenance": _provenance(row["provenance"]),
    }


def _spread(value: float, sd: float | None, claim: Claim) -> str:
    """A number with as many decimals as the claim's own number, at least one; none from 1,000 on."""
    digits = 0 if abs(value) >= 1000 else max(1, _digits(claim.value), _digits(claim.sd))
    text = f"{value:,.{digits}f}" + ("" if sd is None else f" ± {sd:,.{digits}f}")
    return text.replace("-", "\N{MINUS SIGN}")


def _digits(value: float | None) -> int:
    text = f"{value:g}" if value is not None else ""
    return len(text.partition(".")[2])


def _provenance(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known about the origin of a number, as names and texts."""
    seconds, epochs = provenance["seconds"], provenance["epochs"]
    texts = {
        "source": ", ".join(provenance["items"]),
        "tracked as": ", ".join(provenance["tracking_runs"]),
        "commit": provenance["commit"],
        "parameters": provenance["params_hash"],
        "device": provenance["device"],
        "epochs": None if epochs is None else f"{epochs:,.0f}",
        "duration": None if seconds is None else _duration(seconds),
    }
    return [(name, text) for name, text in texts.items() if text]


def _minute(created: str) -> str:
    """An ISO time in UTC, to the minute: "2025-11-02 14:05 UTC"."""
    return f"{created[:16].replace('T', ' ')} UTC"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
