"""The studies of capsule regression that were executed, and how far their settings are from the paper's.

Settings are those that each result recorded itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pipeline.results.findings import NOT_THE_PAPERS_DATA
from pipeline.results.reading import Measured, Recorded, Results, natural
from pipeline.results.studies import Study as AnyStudy
from pipeline.results.studies import studies_of

LABELS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
"""The paper's sources, in its order."""
STAND_INS = {"digits": "mnist"}
"""Sources that stand in for one of the paper's."""
TRAIN, TEST = 50_000, 10_000
"""Images of either of the paper's sets that it trains and tests on; 10,000 more validate."""
FEATURES = 196
MILLION = 1_000_000
PAPER: dict[str, dict[str, Any]] = {
    "convergence": {"size": 4, "iterations": 1000},
    "starts": {"size": 4, "seeds": 20},
    "distorted": {"size": 16, "decision": "all-vs-all", "examples": MILLION},
}
"""By kind of study, the settings that the paper gives, in addition to the features."""
_WORDS = {
    "features": "{:,} features", "size": "capsules of {:,} numbers", "decision": "{}", "iterations": "{:,} iterations",
    "seeds": "{:,} random starts of each sd", "examples": "{:,} examples",
}  # fmt: skip
_AMOUNTS = ("seeds", "passes", "iterations", "samples", "examples")
"""Settings that measure a study's size: the larger, the better."""
KINDS = ("grid", "convergence", "starts", "exactness", "online", "ridge", "sizes", "distorted")
"""Kinds of studies in the order in which they are shown, the paper's own first."""


@dataclass(frozen=True)
class Study(AnyStudy):
    """A study of capsule regression that was executed."""

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
    def original(self) -> str:
        """The paper's source that it uses or replaces."""
        return STAND_INS.get(self.source, self.source)

    @property
    def stands_in(self) -> bool:
        return self.source in STAND_INS

    @property
    def differences(self) -> list[str]:
        """How its settings fall short of the paper's."""
        found = []
        for name, theirs in {"features": FEATURES, **PAPER.get(self.kind, {})}.items():
            ours = self.settings[name]
            if ours != theirs and not (name in _AMOUNTS and ours > theirs):
                paper = theirs if isinstance(theirs, str) else f"{theirs:,}"
                found.append(f"{_WORDS[name].format(ours)} (paper: {paper})")
        return found

    @property
    def remarks(self) -> list[str]:
        """How its data and its settings fall short of the paper's."""
        if self.stands_in:
            return [f"{NOT_THE_PAPERS_DATA} ({LABELS[self.original]})", *self.differences]
        used = {"trained": (self.dataset.train, TRAIN), "tested": (self.dataset.test, TEST)}
        fewer = [
            f"{done} on {ours:,} images (paper: {theirs:,})" for done, (ours, theirs) in used.items() if ours < theirs
        ]
        return fewer + self.differences

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
    found = sorted(studies_of(results, "regression", Study), key=lambda study: (_place(study), natural(study.name)))
    return [study for kind in KINDS for study in found if study.kind == kind]


def _place(study: Study) -> tuple[bool, int]:
    sources = list(LABELS)
    return study.stands_in, sources.index(study.original) if study.original in sources else len(sources)


def candidates(results: Results, kind: str, source: str | None = None) -> list[Study]:
    """Studies of a kind on the paper's data or a stand-in for them, preferred ones first.

    The order is: the paper's own data, in its order; fewer differences from its settings; larger studies (more sizes,
    seeds, passes and so on); the name.

    Args:
        source: only studies on this source, or on a stand-in for it.

    Raises:
        ResultError: as `executed`.
    """
    wanted = LABELS if source is None else (source,)
    return sorted((each for each in executed(results) if each.kind == kind and each.original in wanted), key=_rank)


def _rank(study: Study) -> tuple[Any, ...]:
    amounts = [len(study.settings.get("sizes", ())), *(study.settings.get(name, 0) for name in _AMOUNTS)]
    return _place(study), len(study.differences), [-amount for amount in amounts], natural(study.name)
