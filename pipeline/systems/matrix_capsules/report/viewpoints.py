"""Table 2 of document 004: errors on novel viewpoints of two networks with equal errors on familiar ones."""

from __future__ import annotations

import math

from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report.runs import NETWORKS, in_percent

FAMILIAR_SHARE = 1 / 3
"""About the share of smallNORB's images whose viewpoints count as familiar."""
PAPER_FAMILIAR = {"azimuth": 3.7, "elevation": 4.3}
"""Percent: error on familiar viewpoints at which the paper compares its networks."""
PAPER_NOVEL_RATIO = {"azimuth": 13.5 / 20, "elevation": 12.3 / 17.8}
"""Error of capsules in parts of the convolutional network's, both on novel viewpoints."""


def _novel(axis: str, network: str) -> Measure:
    """Error on novel viewpoints where both networks are alike on familiar ones.

    There is no answer where they are not: where their errors on familiar viewpoints differ by more than two standard
    errors (binomial, of the test images, and over replicas).
    """

    def measure(results: Results) -> Finding | None:
        item, numbers = results.answering("viewpoint", results.evidence.matrix_capsules.viewpoint.get(axis))
        images = numbers.number("images", "familiar")
        capsules, cnn = (numbers.needed("matched", each, "familiar") for each in NETWORKS)
        variance = sum(each.variance_of_share(images) for each in (capsules, cnn)) if images else 0.0
        if abs(capsules.mean - cnn.mean) > SIGNIFICANT_SES * math.sqrt(variance):
            return None
        at, ratio = numbers.needed("matched", network, "epoch"), numbers.needed("novel_ratio")
        familiar, novel = (numbers.needed("late", network, where) for where in ("familiar", "novel"))
        run, document = numbers.trained[network], "viewpoint" if network == "capsules" else "viewpoint_cnn"
        dataset = numbers.settings.datasets[numbers.settings.viewpoint[item].dataset]
        return Finding(
            numbers.needed("matched", network, "novel").scaled(100),
            numbers.records,
            remarks=remarks("matrix_capsules", document, run, dataset, share=FAMILIAR_SHARE),
            notes=[
                f"matched on familiar viewpoints: capsules {in_percent(capsules)} and CNN {in_percent(cnn)} "
                f"(paper: {PAPER_FAMILIAR[axis]} %), after {at.mean:.0f} of {run.training.epochs} epochs",
                f"errors of capsules on novel viewpoints: {ratio.mean:.2f} times the CNN's "
                f"(paper: {PAPER_NOVEL_RATIO[axis]:.2f})",
                f"over its last epochs: {in_percent(familiar)} on familiar viewpoints, "
                f"{in_percent(novel)} on novel ones",
            ],
        )

    return measure


MEASURES: dict[str, Measure] = {
    "004.t2.az.caps": _novel("azimuth", "capsules"),
    "004.t2.az.cnn": _novel("azimuth", "cnn"),
    "004.t2.el.caps": _novel("elevation", "capsules"),
    "004.t2.el.cnn": _novel("elevation", "cnn"),
}


def build(results: Results) -> list[Table]:
    """Both networks' errors where they match, and at the end of training, of every study."""
    heads = {"familiar": ("error, familiar (%)", 2), "novel": ("error, novel (%)", 2), "epoch": ("epoch", 1)}
    rows: list[Row] = [
        ([item, numbers.settings.viewpoint[item].axis, kind, words], cells(numbers, heads, kind, network), numbers)
        for item, numbers in results.executed("viewpoint")
        for kind in ("matched", "late")
        for network, words in NETWORKS.items()
    ]
    caption = (
        "Test errors of networks trained on familiar viewpoints alone. Matched: the worse of the two by means over its "
        "last ten epochs, the other where it first is as good on familiar viewpoints; late: those means of both."
    )
    keys = ["study", "axis", "read where", "network"]
    return measured_table("matrix-viewpoints", "Errors on novel viewpoints", caption, keys, heads, rows)
