"""Tables of top-down attention (document 001)."""

from __future__ import annotations

import pandas as pd

from pipeline.drawing.drawings import Written
from pipeline.drawing.table import Table, tracked
from pipeline.results.reading import Results, dataset_label
from pipeline.systems.attention.report.studies import executed

_SHOWN: dict[str, tuple[str, str, dict[str, tuple[str, str]]]] = {
    "toy": (
        "Where inference in the toy network ends",
        "Hidden activities after inference from the forward pass, and how many units they amount to.",
        {
            "reading": ("objective", ""),
            "weight": ("weight", "g"),
            "penalty": ("penalty", ""),
            **{f"h{i}": (f"unit {i}", "z.2f") for i in (1, 2, 3)},
            "effective_number": ("effective units", ".2f"),
        },
    ),
    "iterated": (
        "Attention after its last iteration",
        "Entropy of parts' attention over parents; share of parts with more than 0.99 of it on one parent; share of "
        "parts that look most at their own.",
        {
            "scale": ("scale", "g"),
            "sigma": ("sd of parts", "g"),
            "entropy": ("entropy (nats)", ".3f"),
            "single": ("a single parent (%)", ".1%"),
            "right": ("at their own parent (%)", ".1%"),
        },
    ),
    "density": (
        "Samples against densities of the top-down model",
        "By how many standard errors samples miss an identity that only their own density fulfils (poses, cues; at "
        "most over the components), and what equation 7 integrates to where a pose is its own cue, with weights that "
        "are a softmax of log densities (literal) and, as it is printed, of the densities themselves (printed).",
        {
            "what": ("what", ""),
            "dimensions": ("dimensions", ".0f"),
            "kappa": ("kappa", "g"),
            "z": ("deviation (standard errors)", ".2f"),
            "mass": ("integral", ".2f"),
        },
    ),
    "parsing": (
        "Planted scenes, parsed",
        "Share of parts with a parent whose parent is found (one that is called clutter is not), with its standard "
        "error over scenes; share of clutter that is recognised, by methods that know it; error of the shown objects' "
        "poses (root mean square, in their sd). Routing as published has few iterations from one start; long has many; "
        "of several starts the likeliest is kept. True poses know where objects are, and which of them are shown.",
        {
            "sigma": ("sd of parts", "g"),
            "shown": ("objects", ".0f"),
            "method": ("method", ""),
            "found": ("parents found (%)", ".1%"),
            "standard_error": ("standard error", ".1%"),
            "clutter_found": ("clutter recognised (%)", ".1%"),
            "pose_error": ("pose error", ".3f"),
        },
    ),
}
"""By study: title, caption, and columns with the heads and formats they are shown with."""


def build(results: Results, written: Written) -> list[Table]:
    """A table for each study that was executed, kind after kind."""
    tables = []
    for study in executed(results):
        title, caption, columns = _SHOWN[study.kind]
        iterated = study.kind == "iterated"
        data = results.table("attention", study.name, [*columns, *(["iteration"] if iterated else [])])
        if data is None:
            continue
        if iterated:
            data = data[data["iteration"] == data["iteration"].max()].reset_index(drop=True)
        records = study.numbers.records
        tidy = data[list(columns)].assign(dataset=dataset_label(records), tracking_run=tracked(records))
        shown = pd.DataFrame(
            {head: [_cell(value, form) for value in data[column]] for column, (head, form) in columns.items()}
        )
        tables.append(Table(f"attention-{study.name}", title, caption, tidy, shown, records))
    return tables


def _cell(value: object, form: str) -> str:
    if isinstance(value, float) and pd.isna(value):
        return ""
    return format(value, form).removesuffix("%") if form else str(value)
