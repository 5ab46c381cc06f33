"""Tables of top-down attention (document 001)."""

from __future__ import annotations

from pipeline.drawing.table import Columns, Table, study_table
from pipeline.results.reading import Results, natural
from pipeline.results.studies import Study, studies_of

_SHOWN: dict[str, tuple[str, str, Columns]] = {
    "toy": (
        "Result of inference in the toy network",
        "Hidden activities after inference that starts from the forward pass; effective number of active units.",
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
        "Entropy of parts' attention over parents; share of parts with more than 0.99 of their attention on one "
        "parent; share of parts that attend most to their own parent.",
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
        "Goodness of fit: by how many standard errors samples violate an identity that holds only for their own "
        "density (poses, cues; the largest over the components). Integral: of equation 7 if a pose is its own cue, "
        "with weights that are a softmax of log densities (literal) or of the densities, as printed (printed).",
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
        "Share of parts with a parent whose parent is found (a part taken for clutter does not count), with its "
        "standard error over scenes; share of clutter that is recognised, for methods that model clutter; root mean "
        "square error of the shown objects' poses, in units of their sd. Routing as published has few iterations from "
        'one start; "long" has many; of several starts the most likely one is kept. "True poses" is given the poses '
        "of the objects in the scene.",
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
"""By kind of study, in the order in which they are shown: title, caption, and the columns with their headings and
number formats.
"""


def executed(results: Results) -> list[Study]:
    """All studies, sorted by kind, then by name. Raises `ResultError` if a result is corrupt or lacks its settings."""
    kinds = list(_SHOWN)
    found = studies_of(results, "attention", Study)
    return sorted(found, key=lambda study: (kinds.index(study.kind), natural(study.name)))


def build(results: Results) -> list[Table]:
    """A table for each study that was executed, sorted by kind."""
    tables = []
    for study in executed(results):
        title, caption, columns = _SHOWN[study.kind]
        data = study.table(list(columns))
        if data is None:
            continue
        if study.kind == "iterated":
            data = data[data["iteration"] == data["iteration"].max()].reset_index(drop=True)
        name = f"attention-{study.name}"
        tables.append(study_table(name, title, caption, data, columns, study.numbers.records))
    return tables
