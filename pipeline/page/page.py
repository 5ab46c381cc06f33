"""The page: one self-contained HTML file with the claims, the figures and the tables of a profile.

The file needs no network and no server. Figures are data URIs; styles and scripts are inline. If scripts are disabled,
everything except films is shown, and the filters still work (they are plain CSS). `page.js` sorts and searches claims,
and keeps filters and order in the page's address. `tables.js` sorts tables. `films.js` shows films with a slider.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.drawing.drawings import Picture
from pipeline.drawing.table import Table
from pipeline.files import read_json
from pipeline.layout import Layout
from pipeline.page.figures import front_picture
from pipeline.page.scorecard import TIERS, Row, Verdict, count_verdicts, tier, tolerance
from pipeline.report import model_table
from pipeline.results.claims import DOCUMENTS, Claim
from pipeline.results.freshness import by_reason
from pipeline.results.provenance import dataset_label, merged_provenance, unique

_FOLDER = Path(__file__).parent

MARKS: dict[Verdict, tuple[str, str]] = {
    "holds": ("✓", "good"),
    "within": ("●", "good"),
    "better": ("▲", "good"),
    "undecided": ("≈", "none"),
    "not tested": ("◌", "none"),
    "worse": ("▼", "bad"),
    "fails": ("✗", "bad"),
    "not run": ("○", "none"),
}
"""The mark and tone of each verdict. Verdicts go from agreement to disagreement; "not run" is last. The tone (good, bad
or none) sets the colour of the mark. The mark's shape and the word next to it make the verdict clear without colour.
"""

QUICK, PAPER = "quick", "paper"
"""The default profile, and the profile with the documents' data, as far as we have them. Every profile's page shows the
numbers of these two.
"""
CHANGES = {
    "not run": "",
    "budget": "with a longer training, or more images, in params.yaml",
    "noise": "with more seeds or test images in params.yaml",
    "data": "with the document's data",
    "setting": "with the document's settings, as in profile paper-gpu",
    "unexplained": "with other seeds, networks or step sizes in params.yaml",
}
"""For each kind of reason in a row's field `why`: words that say what to change to test the claim."""

_AWAY = "arrays or tables are not on this machine, so figures of these items are older, or missing"
_AFTER_UNIT = re.compile(r",| \(| (above|between|by|from|gained|lost|minus|more|of|that|the|to|with|without)\b")
_FEW = 3
"""Maximum number of items or of commits that a line of the page names. If there are more, it says how many more."""

Content = dict[str, Any]
"""Values that the template `page.html.j2` shows, by their names in the template."""


def other_scorecards(root: Path, profile: str) -> dict[str, list[Row]]:
    """The scorecards of `QUICK` and `PAPER`, by profile. That of `profile` and missing ones are left out."""
    paths = {name: Layout(root, name).scorecard_path for name in (QUICK, PAPER) if name != profile}
    return {name: read_json(path) for name, path in paths.items() if path.exists()}


def build_page(
    rows: Sequence[Row],
    claims: Sequence[Claim],
    profile: str,
    figures: Sequence[Picture],
    tables: Sequence[Table],
    differing: Mapping[str, str],
    scorecards: Mapping[str, Sequence[Row]],
    incomplete: Sequence[str] = (),
    repository: str = "",
) -> str:
    """The page as HTML; the same arguments give the same page.

    Args:
        rows: the scorecard, one row per claim in the order of `claims`.
        differing: for each `<stage>/<item>` whose result is missing, stale, a draft or no longer in the profile, its
            state in words. Figures, tables and claims that use such a result are marked with this text.
        scorecards: scorecards of other profiles, by profile, to show beside `rows`.
        incomplete: executed items whose arrays or tables were missing when the figures were drawn.
        repository: web address for links to commits and code. If it is empty, links to code are relative paths.
    """
    records = [record for table in tables for record in table.records]
    all_cards = _cards(rows, claims, profile, differing, scorecards)
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
                "bar": _bar(card["own"]["verdict"] for card in chosen),
                "picture": front_picture(own),
                "figures": own,
                "tables": [each for each in tables if each.document == number],
            }
        )
    names = ("page.css", "page.js", "films.js", "tables.js")
    style, *scripts = [(_FOLDER / name).read_text(encoding="utf-8") for name in names]
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, **options)
    environment.filters |= {
        "tier_key": lambda name: name.split()[0].replace("'", "") if name else "none",
        "in_script": lambda text: text.replace("<", "\\u003c"),  # so that JSON cannot close the <script>
        "origin": lambda records: _origin(merged_provenance(records), dataset_label(records)),
        "differing": lambda records: by_reason(merged_provenance(records)["items"], differing),
    }
    return environment.get_template("page.html.j2").render(
        profile=profile,
        repository=repository,
        profiles=list(scorecards),
        style=style,
        scripts=scripts,
        dates=" to ".join(dict.fromkeys([*days[:1], *days[-1:]])),
        datasets=unique(each.get("dataset") for each in records),
        devices=unique(each.get("device") for each in records),
        commits=_commits(merged_provenance(records)["commit"]),
        marks=MARKS,
        tiers=TIERS,
        counts=counts,
        totals={verdict: sum(row[verdict] for row in counts.values()) for verdict in MARKS},
        claims=len(rows),
        bar=_bar(row["verdict"] for row in rows),
        documents=documents,
        figures=[each for each in figures if not each.document],
        tables=[each for each in tables if not each.document],
        absent=model_table.NOT_MEASURED,
        models=sum(len(table.shown) for table in tables if table.name == model_table.NAME),
        notices=by_reason(differing, differing) | ({_AWAY: list(incomplete)} if incomplete else {}),
    )


# ---- cards of claims


def _cards(
    rows: Sequence[Row],
    claims: Sequence[Claim],
    profile: str,
    differing: Mapping[str, str],
    others: Mapping[str, Sequence[Row]],
) -> list[Content]:
    """One card per row: the claim, the document's number, our finding, and the findings of the profiles in `others`."""
    shown = []
    for row, claim in zip(rows, claims, strict=True):
        beside = {name: found for name, of in others.items() for found in of if found["id"] == row["id"]}
        dataset, paper, reason = row["dataset"] or "", row["paper"], row["why"]
        shown.append(
            {
                "claim": claim,
                "key": row["verdict"].replace(" ", "-"),
                "unit": _AFTER_UNIT.split(claim.unit)[0],
                "long_unit": claim.unit if _AFTER_UNIT.search(claim.unit) else "",
                "paper": "" if paper["value"] is None else _spread(paper["value"], paper["sd"], claim),
                "tolerance": _tolerance(claim),
                "own": _cell(row, claim, profile),
                "why": ": ".join(reason) if reason else "",
                "test": _test(row, reason[0], beside.get(PAPER) if profile == QUICK else None) if reason else None,
                "others": [_cell(found, claim, name) for name, found in beside.items()],
                "dataset": dataset,
                "remarks": row["remarks"],
                "notes": row["notes"],
                "differing": by_reason(row["provenance"]["items"], differing),
                "origin": _origin(row["provenance"], dataset),
            }
        )
    return shown


def _cell(row: Row, claim: Claim, profile: str) -> Content:
    """One profile's finding about a claim: the number, the meaning of ±, a sort key, the verdict, the tier, and shell
    commands that measure the claim again. The entry `judged` is the row's `judged`, or empty if that equals `verdict`.
    """
    ours, verdict, items = row["ours"], row["verdict"], row["provenance"]["items"]
    mark, tone = MARKS[verdict]
    switch = [] if profile == QUICK else [_switch(profile)]
    value = spread_of = ""
    if ours:
        is_error, n = ours.get("standard_error", False), ours["n"]
        value = _spread(ours["value"], ours["sd"] if is_error or n > 1 else None, claim)
        spread_of = "± standard error" if is_error else f"{n} seed{'s' * (n != 1)}"
    return {
        "profile": profile,
        "value": value,
        "spread_of": spread_of,
        "sort": ours["value"] if ours else "",
        "verdict": verdict,
        "mark": mark,
        "tone": tone,
        "tier": tier(row),
        "judged": row["judged"] if row["judged"] != verdict else "",
        # With -s, DVC runs only `figures` and `tables`. Without it, DVC would run every item that they depend on.
        "commands": [*switch, _repro(items), "dvc repro -s figures tables"] if items else [],
    }


def _test(row: Row, kind: str, paper: Row | None) -> tuple[str, str]:
    """Two texts that say how to test a claim: advice, with the time that its items took, and a shell command. `kind` is
    the first entry of the row's `why`. `paper` is the claim's row in profile paper; the advice names that profile if
    the claim was run there.
    """
    change, switch = CHANGES[kind], ""
    if paper and paper["verdict"] != "not run":
        row, change = paper, f"in profile {PAPER}, verdict there: {paper['verdict']}"
        switch = f"{_switch(PAPER)} && "
    items, seconds = row["provenance"]["items"], row["provenance"]["seconds"]
    if not items:
        return "see what this profile has not run yet", "python -m pipeline status"
    return change if seconds is None else f"{change} (it took {_duration(seconds)})", switch + _repro(items)


def _switch(profile: str) -> str:
    return f"python -m pipeline profile switch {profile}"


def _repro(items: Sequence[str]) -> str:
    return f"dvc repro {' '.join(item.replace('/', '@', 1) for item in items)}"


def _tolerance(claim: Claim) -> str:
    """A claim's number, its tolerance and the reason for the tolerance, as text. Empty for a claim without a number."""
    if claim.value is None:
        return ""
    distance, reason = tolerance(claim)
    return f"{claim.value:g} ± {format(distance, '.2g' if distance < 10 else ',.0f')} {claim.unit} ({reason})"


def _spread(value: float, sd: float | None, claim: Claim) -> str:
    """`value ± sd` as text, or only the value if `sd` is None. Both have as many decimals as the document's number or
    its sd (whichever has more), but at least one. They have no decimals if |value| >= 1,000, and one decimal more if
    0 < `sd` < 0.05. If `sd` is None and 0 < |value| < 0.05, the value has two significant digits.
    """
    published = [f"{number:g}".partition(".")[2] for number in (claim.value, claim.sd) if number is not None]
    digits = 0 if abs(value) >= 1000 else max([1, *map(len, published)])
    if sd is not None:
        digits += 0 < sd < 0.05
        text = f"{value:,.{digits}f} ± {sd:,.{digits}f}"
    else:
        text = f"{value:.2g}" if 0 < abs(value) < 0.05 else f"{value:,.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _bar(verdicts: Iterable[Verdict]) -> list[Content]:
    """The segments of a bar of verdicts, in the order of `MARKS`. Verdicts that do not occur have no segment."""
    counted = list(verdicts)
    return [
        {"verdict": verdict, "key": verdict.replace(" ", "-"), "mark": mark, "count": count}
        for verdict, (mark, _) in MARKS.items()
        if (count := counted.count(verdict))
    ]


def _origin(merged: Mapping[str, Any], dataset: str) -> Content | None:
    """Where numbers come from: items, data set, commits, time and device. `merged` is what `merged_provenance` returns.
    The entry `record` is a dictionary of further facts, as text. Returns None if there are no items.
    """
    found, items, seconds = _commits(merged["commit"]), merged["items"], merged["seconds"]
    texts = {
        "results": ", ".join(items) if len(items) > _FEW else "",
        "commits": merged["commit"] if len(found) > _FEW else "",
        "tracked as": ", ".join(merged["tracking_runs"]),
        "parameters": merged["params_hash"],
        "epochs": merged["epochs"] and f"{merged['epochs']:,.0f}",
    }
    about = {
        "items": ", ".join(items[:_FEW]) + (f" and {len(items) - _FEW} more" if len(items) > _FEW else ""),
        "dataset": dataset,
        "commits": found[:_FEW],
        "more_commits": max(0, len(found) - _FEW),
        "effort": ", ".join(filter(None, [seconds and _duration(seconds), merged["device"]])),
        "record": {name: text for name, text in texts.items() if text},
    }
    return about if items else None


def _commits(merged: str | None) -> list[str]:
    """The commits in the text `merged`, in which commas separate them, as short hashes without repetitions."""
    return unique(re.sub(r"^([0-9a-f]{7})[0-9a-f]+", r"\1", name) for name in (merged or "").split(", ") if name)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
