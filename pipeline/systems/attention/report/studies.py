"""The studies of top-down attention that were executed, with the settings that each result recorded."""

from __future__ import annotations

from pipeline.results.reading import Results, natural
from pipeline.results.studies import Study, studies_of

_AMOUNTS = {"toy": "steps", "iterated": "scenes", "density": "samples", "parsing": "scenes"}
"""By kind of study, in the order in which they are shown: the setting that measures a study's size."""


def executed(results: Results) -> list[Study]:
    """All studies, sorted by kind, then by name.

    Raises:
        ResultError: a result is corrupt, or lacks its settings.
    """
    found = sorted(studies_of(results, "attention", Study), key=lambda study: natural(study.name))
    return [study for kind in _AMOUNTS for study in found if study.kind == kind]


def candidates(results: Results, kind: str) -> list[Study]:
    """Studies of a kind, those with most scenes, samples or steps first, then by name.

    Closeness to the paper does not count: the document gives no data and no settings for these studies.

    Raises:
        ResultError: as `executed`.
    """
    found = [study for study in executed(results) if study.kind == kind]
    return sorted(found, key=lambda study: (-study.settings[_AMOUNTS[kind]], natural(study.name)))
