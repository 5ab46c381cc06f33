"""One module for each kind of study of capsule regression, each with `run(inputs, study, extras)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from pipeline.results.outcome import Outcome
from pipeline.systems.regression.model.fits import KeepAt, no_checkpoints
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.settings import RegressionStudy

Item = TypeVar("Item")


@dataclass(frozen=True)
class Extras:
    """What studies may need in addition to inputs and settings.

    Attributes:
        images: uint8 `[n, 1, S, S]` of each part.
        keep_at: returns the checkpoints of fits.
        title: shown next to progress bars; without a title there are none.
    """

    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    keep_at: KeepAt = no_checkpoints
    title: str = ""

    def bar(self, items: Iterable[Item], unit: str) -> Iterable[Item]:
        """The items, with a progress bar."""
        return tqdm(items, desc=self.title, unit=unit, disable=not self.title)


def run_study(inputs: Inputs, study: RegressionStudy, extras: Extras) -> Outcome:
    """Run a study with its settings; only its own module is imported.

    Raises:
        ValueError: the inputs do not fit the study, such as capsules larger than the inputs.
    """
    outcome: Outcome = import_module(f"{__name__}.{study.study}").run(inputs, study, extras)
    return outcome
