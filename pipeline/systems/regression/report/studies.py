"""The studies of capsule regression that were executed, with the settings that each result recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pipeline.results.documents import remarks
from pipeline.results.measured import Measured
from pipeline.results.reading import Recorded, Results, natural
from pipeline.results.studies import Study as AnyStudy
from pipeline.results.studies import studies_of, study_of

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The paper's data sets by their role, in its order."""
SOURCES = ("mnist", "fashion-mnist")
"""Their sources."""
KINDS = ("grid", "convergence", "starts", "exactness", "online", "ridge", "sizes", "distorted")
"""Kinds of studies in the order in which they are shown, the paper's own first."""


@dataclass(frozen=True)
class Study(AnyStudy):
    """A study of capsule regression that was executed.

    Attributes:
        role: the data set of the paper that it answers for; empty if it answers no claim.
    """

    role: str = ""

    @property
    def dataset(self) -> Recorded:
        """The settings of its data, as the result recorded them."""
        found: Recorded = self.numbers.settings.datasets[self.settings.dataset]
        return found

    @property
    def source(self) -> str:
        """The source of its images."""
        return str(self.dataset.source)

    @property
    def remarks(self) -> list[str]:
        """In what its data and its settings fall short of the paper's."""
        of_data = remarks("regression", self.role, {}, self.dataset, tested=self.dataset.test)
        return of_data + remarks("regression", self.kind, self.settings, self.dataset)

    def error(self, decision: str, size: str, part: str = "test") -> Measured | None:
        """The error (percent) of one model of a grid."""
        found = self.numbers.measured("errors", decision, size, part)
        return found.scaled(100) if found else None

    def noise(self, *errors: float) -> float:
        """Two standard errors (points) of the difference of errors (percent) on the study's test images."""
        variance = sum(error / 100 * (1 - error / 100) for error in errors) / self.dataset.test
        return 2 * 100 * math.sqrt(variance)


def executed(results: Results) -> list[Study]:
    """All studies, sorted by kind; within a kind the paper's data sets in its order, then others, then by name.

    Raises:
        ResultError: a result is corrupt, or lacks its settings.
    """

    def place(study: Study) -> tuple[object, ...]:
        source = SOURCES.index(study.source) if study.source in SOURCES else len(SOURCES)
        return KINDS.index(study.kind), source, natural(study.name)

    return sorted(studies_of(results, "regression", Study), key=place)


def answering(results: Results, kind: str) -> list[Study]:
    """The executed studies of a kind that evidence names, in the order of the paper's data sets."""
    names = getattr(results.evidence.regression, kind)
    found = ((role, study_of(results, "regression", names.get(role), Study)) for role in SETS)
    return [replace(study, role=role) for role, study in found if study]
