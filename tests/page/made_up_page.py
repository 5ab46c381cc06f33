"""A page on stand-ins: three claims answered from made-up records, one figure, one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.table import Table
from pipeline.page.images import Shown
from pipeline.page.page import build_page
from pipeline.page.scorecard import Row, build_scorecard
from pipeline.results.claims import Claim
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record
from pipeline.results.reading import Results

CLAIMS = [
    Claim(id="000.a", where="Table 1", claim="The probe is right", value=96.0, sd=1.0, better="higher"),
    Claim(id="000.b", where="Figure 4", claim="It falls", holds_when="the last is below the first", unit="%"),
    Claim(id="001.c", where="section 2", claim="It is sparse", holds_when="few are on", unit="%"),
]


def record(stage: str, item: str, **values: Any) -> Record:
    return {
        "stage": stage,
        "item": item,
        "profile": "quick",
        "dataset": "digits",
        "commit": "1f2e3d4c",
        "params_hash": "abc",
        "device": "CPU (2 cores)",
        "epochs": 25.0,
        "seconds": 61.5,
        "created": "2025-11-02T14:05:09+00:00",
        "tracking_run": f"20251102-140509-{stage}-{item}-a1b2c3",
    } | values


TRAINED, PROBED, SWEPT = (record(stage, "capsules") for stage in ("train", "evaluate", "sweep"))


def first(results: Results) -> Finding:
    return Finding(Measured(95.5, 0.4, 5), "MNIST", [TRAINED, PROBED])


def second(results: Results) -> Finding:
    return Finding(None, "digits", [SWEPT], holds=True, remarks=["not the paper's data (MNIST)"], notes=["a note"])


MEASURES: dict[str, Measure] = {"000.a": first, "000.b": second}


def scorecard(results: Results, others: Mapping[str, str]) -> list[Row]:
    return build_scorecard(CLAIMS, results, MEASURES, profile="quick", others=others)


def page(results: Results, missing: Sequence[str] = (), others: Mapping[str, str] | None = None, **more: Any) -> str:
    others = others or {}
    drawing = Drawing(
        "accuracy",
        "svg",
        "Accuracy",
        "What to see.",
        "A plot of accuracy.",
        [PROBED],
        Figure,
        document="000",
    )
    shown = pd.DataFrame({"run": ["capsules"], "accuracy": ["95.5"]})
    tables = [
        Table("training", "Training runs", "What it took.", shown, shown, [TRAINED]),
        Table("sweep", "Rotations", "What it lost.", shown, shown, [SWEPT]),
    ]
    figures = [Shown(drawing, "data:image/svg+xml;base64,PHN2Zy8+", 400)]
    return build_page(scorecard(results, others), CLAIMS, "quick", figures, tables, missing, others, **more)
