"""The studies of top-down attention that were executed, with the settings that each result recorded."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.results.reading import Numbers, Recorded, Results, natural

_AMOUNTS = {"toy": "steps", "iterated": "scenes", "density": "samples", "parsing": "scenes"}
"""By kind of study, in the order in which they are shown: the setting that measures a study's size."""


@dataclass(frozen=True)
class Study:
    """A study that was executed.

    Attributes:
        settings: the study's own settings, as the result recorded them.
    """

    name: str
    numbers: Numbers
    settings: Recorded

    @property
    def kind(self) -> str:
        """Such as "toy"."""
        return str(self.settings.study)


def executed(results: Results) -> list[Study]:
    """All studies, sorted by kind, then by name.

    Raises:
        ResultError: a result is corrupt, or lacks its settings.
    """
    found = [Study(name, numbers, numbers.settings.attention[name]) for name, numbers in results.executed("attention")]
    return [study for kind in _AMOUNTS for study in found if study.kind == kind]


def candidates(results: Results, kind: str) -> list[Study]:
    """Studies of a kind, those with most scenes, samples or steps first, then by name.

    Closeness to the paper does not count: the document gives no data and no settings for these studies.

    Raises:
        ResultError: as `executed`.
    """
    found = [study for study in executed(results) if study.kind == kind]
    return sorted(found, key=lambda study: (-study.settings[_AMOUNTS[kind]], natural(study.name)))
