"""The studies of capsule regression that were executed, with the settings that each result recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pipeline.results.documents import remarks
from pipeline.results.reading import Recorded, Results, natural
from pipeline.results.studies import Study, studies_of, study_of

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The paper's data sets by their role, in its order."""
SOURCES = ("mnist", "fashion-mnist")
"""Their sources."""
KINDS = ("grid", "convergence", "starts", "exactness", "online", "ridge", "distorted")
"""Kinds of studies in the order in which they are shown, the paper's own first."""


@dataclass(frozen=True)
class RegressionStudy(Study):
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

    def mean(self, *keys: str) -> float:
        """The number under nested `keys`, which every study of its kind has."""
        value: float = self.numbers.at(*keys)["mean"]
        return value

    def errors(self, decision: str, part: str = "test") -> dict[str, float]:
        """Errors (percent) of the models of a grid with one architecture, by capsule size, the smallest first."""
        found = self.numbers.at("errors", decision) or {}
        return {size: 100 * found[size][part]["mean"] for size in sorted(found, key=int)}

    def above(self, error: float, other: float) -> bool:
        """Whether an error (percent) on the study's test images is above another by more than noise: two standard
        errors of their difference.
        """
        variance = sum(each / 100 * (1 - each / 100) for each in (error, other)) / self.dataset.test
        return error > other + 2 * 100 * math.sqrt(variance)


def executed(results: Results) -> list[RegressionStudy]:
    """All studies, sorted by kind; within a kind the paper's data sets in its order, then others, then by name.

    Raises:
        ResultError: a result is corrupt, or lacks its settings.
    """

    def place(study: RegressionStudy) -> tuple[object, ...]:
        source = SOURCES.index(study.source) if study.source in SOURCES else len(SOURCES)
        return KINDS.index(study.kind), source, natural(study.name)

    return sorted(studies_of(results, "regression", RegressionStudy), key=place)


def answering(results: Results, kind: str) -> list[RegressionStudy]:
    """The executed studies of a kind that evidence names, in the order of the paper's data sets."""
    names = getattr(results.evidence.regression, kind)
    found = ((role, study_of(results, "regression", names.get(role), RegressionStudy)) for role in SETS)
    return [replace(study, role=role) for role, study in found if study]
