"""Executed studies. A study is an item of its own (as in `regression`), or one of a set (`regression_sets`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd

from pipeline.results.reading import Numbers, Recorded, Results

Kind = TypeVar("Kind", bound="Study")


@dataclass(frozen=True)
class Study:
    """A study that was executed.

    Attributes:
        stage, item: stage and item whose result holds the study.
        part: the study's name in the result if the item is a set, else None.
        numbers: the study's numbers, with the provenance of the item.
        settings: the study's settings, as the result recorded them.
    """

    results: Results
    stage: str
    item: str
    part: str | None
    numbers: Numbers
    settings: Recorded

    @property
    def name(self) -> str:
        return self.part or self.item

    @property
    def label(self) -> str:
        """The item, and the study's name where the item is a set: `regression_sets/digits (grid-digits)`."""
        return f"{self.stage}/{self.item}" + (f" ({self.part})" if self.part else "")

    @property
    def kind(self) -> str:
        """The kind of study, such as "grid"."""
        return str(self.settings.study)

    def table(self, columns: Sequence[str]) -> pd.DataFrame | None:
        """The study's table, as from `Results.table`."""
        return self.results.table(self.stage, self.item, columns, self.part)

    def examples(self, names: Sequence[str]) -> dict[str, np.ndarray] | None:
        """The study's arrays, as from `Results.examples`."""
        return self.results.examples(self.stage, self.item, names, self.part)


def studies_of(results: Results, stage: str, kind: type[Kind]) -> Iterator[Kind]:
    """All executed studies of a stage and of the sets beside it (`<stage>_sets`), as objects of `kind`.

    Sets come last. Items are in natural order, studies in their set's order. `ResultError` if a result is corrupt.
    """
    for item, numbers in results.executed(stage):
        yield kind(results, stage, item, None, numbers, numbers.settings[stage][item])
    sets = f"{stage}_sets"
    for item, numbers in results.executed(sets):
        settings = numbers.settings[sets][item].studies
        for name in numbers.names("studies"):
            own = numbers.part("studies", name)
            label = own.at("dataset")  # only recorded if the data sets of the studies differ
            yield kind(results, sets, item, name, own.about(label) if label else own, settings[name])


def study_of(results: Results, stage: str, name: str | None, kind: type[Kind]) -> Kind | None:
    """The first study called `name`, alone or in a set; None if there is none. Raises `ResultError` as `studies_of`."""
    return next((study for study in studies_of(results, stage, kind) if study.name == name), None)
