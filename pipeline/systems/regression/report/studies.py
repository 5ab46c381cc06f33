"""The studies of capsule regression that were executed, with the settings that each result recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pipeline.results.documents import remarks
from pipeline.results.findings import Remark
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
    def remarks(self) -> list[Remark]:
        """In what its data and its settings fall short of the paper's."""
        said = remarks("regression", self.role, {}, self.dataset, tested=self.dataset.test)
        said += remarks("regression", self.kind, self.settings, self.dataset)
        if self.kind == "distorted":
            strength = self.numbers.at("distorted", "strength")
            words = f"our distortions, strength {strength:g} (paper: infinite MNIST)"
            said.append(Remark(words, "data", untested=True))
        return said

    def mean(self, *keys: str) -> float:
        """The number under nested `keys`. Raises `NotMeasuredError` if it is missing."""
        return self.numbers.needed(*keys).mean

    def errors(self, part: str = "test") -> pd.DataFrame:
        """Errors (percent) of a grid's models: a row for each architecture, a column for each capsule size."""
        cells = {
            decision: {int(size): 100 * measured[part]["mean"] for size, measured in sizes.items()}
            for decision, sizes in self.numbers.at("errors").items()
        }
        return pd.DataFrame(cells).sort_index().T

    def above(self, errors: ArrayLike, others: ArrayLike) -> bool:
        """Whether any error (percent) on the study's test images is above its counterpart by more than noise: two
        standard errors of their difference.
        """
        ours, theirs = np.asarray(errors), np.asarray(others)
        variance = sum(each / 100 * (1 - each / 100) for each in (ours, theirs)) / self.dataset.test
        return bool((ours > theirs + 2 * 100 * np.sqrt(variance)).any())


def executed(results: Results) -> list[RegressionStudy]:
    """All studies, sorted by kind; within a kind the paper's data sets in its order, then others, then by name.

    Raises:
        ResultError: a result is corrupt, or lacks its settings.
    """

    def place(study: RegressionStudy) -> tuple[object, ...]:
        return KINDS.index(study.kind), [*SOURCES, study.source].index(study.source), natural(study.name)

    return sorted(studies_of(results, "regression", RegressionStudy), key=place)


def answering(results: Results, kind: str) -> list[RegressionStudy]:
    """The executed studies of a kind that evidence names, in the order of the paper's data sets."""
    names = getattr(results.evidence.regression, kind)
    found = ((role, study_of(results, "regression", names.get(role), RegressionStudy)) for role in SETS)
    return [replace(study, role=role) for role, study in found if study]
