"""A report on made-up results: figures, tables and page as the stages would write them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from made_up import Writer, with_evidence
from recorded import STAGES, recorded

from pipeline import report
from pipeline.dependencies import Graph
from pipeline.page.figures import on_disk, write_figures
from pipeline.page.images import load_figures
from pipeline.page.page import build_page
from pipeline.page.scorecard import build_scorecard
from pipeline.params import Params, parse_params
from pipeline.results.claims import Claim, load_claims
from pipeline.results.freshness import compare, expected_settings


def expected(params: Params) -> dict[str, dict[str, Any]]:
    """The settings of each item under these parameters."""
    values = params.model_dump(mode="json")
    # Angles as params.yaml writes them, and items are named: 45, not 45.0.
    angles = [round(angle) if angle == round(angle) else angle for angle in params.sweep.angles]
    names = {**values, "sweep": {**values["sweep"], "angles": angles}}
    return expected_settings(Graph(STAGES, names), values)


def moved_on(values: dict[str, Any]) -> Params:
    """The profile after its VAE was changed, its optimise study taken out, and its sweep given other angles."""
    run = values["runs"]["vae-digits"]
    vae = run | {"training": run["training"] | {"epochs": run["training"]["epochs"] + 1}}
    sweep = values["sweep"] | {"angles": [0, *range(10, 90, 10)]}
    without = with_evidence(values, "generative", optimise=None)
    return parse_params(without | {"runs": values["runs"] | {"vae-digits": vae}, "optimise": {}, "sweep": sweep})


def write_page(writer: Writer, params: Params, claims: list[Claim] | None = None, now: Params | None = None) -> str:
    """Draw the figures into `reports/quick/figures` and return the page.

    Args:
        params: that the results were made with.
        now: the profile when the page is written, where it is another.
    """
    claims = claims or load_claims()
    folder = writer.root / "reports" / "quick" / "figures"
    results = recorded(writer.results, params)
    missing, others = compare(results, expected(now or params))
    written = write_figures(folder, results)
    tables = list(report.build(results))
    rows = build_scorecard(claims, results, profile="quick", others=others)
    figures = load_figures(folder, on_disk(folder, results))
    return build_page(rows, claims, "quick", figures, tables, missing, others, incomplete=written.missing)


@dataclass(frozen=True)
class Report:
    """A report on every made-up item, drawn once for all tests that only read it."""

    writer: Writer
    params: Params
    figures: Path
    page: Path
    content: str
