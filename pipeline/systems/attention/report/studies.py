"""The studies of top-down attention that were executed, with the settings that each result recorded."""

from __future__ import annotations

from pipeline.results.reading import Results, natural
from pipeline.results.studies import Study, studies_of

KINDS = ("toy", "iterated", "density", "parsing")
"""Kinds of studies, in the order in which they are shown."""


def executed(results: Results) -> list[Study]:
    """All studies, sorted by kind, then by name.

    Raises:
        ResultError: a result is corrupt, or lacks its settings.
    """
    found = studies_of(results, "attention", Study)
    return sorted(found, key=lambda study: (KINDS.index(study.kind), natural(study.name)))
