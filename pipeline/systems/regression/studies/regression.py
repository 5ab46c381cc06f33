"""One study of capsule regression, each a module here with `run(inputs, study, extras)` (document 002)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from pipeline.compute import prepare
from pipeline.data.datasets import PARTS
from pipeline.errors import UserError
from pipeline.results.outcome import Outcome
from pipeline.studies.context import Context
from pipeline.systems.regression.model.fits import KeepAt, checkpoints_in, no_checkpoints
from pipeline.systems.regression.model.inputs import Inputs, build_inputs
from pipeline.systems.regression.settings import RegressionStudy

Item = TypeVar("Item")

FOLDER = "pipeline/systems/regression/studies"


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


def measure(context: Context) -> Outcome:
    """Run a study with the settings of an entry of `regression`.

    Raises:
        UserError: the data set does not fit the study.
    """
    study: RegressionStudy = context.settings
    dataset, device = context.evaluated(study.dataset), context.device
    prepare(device)
    # Fits are kept by the code of their own study, so that an edit of one repeats no other's in a set.
    code = context.own_code(FOLDER, "regression.py", f"{study.study}.py")
    common = {"data": context.sha256(study.dataset), "features": study.features, "device": device.type}
    images = {part: dataset.part(part)[0] for part in PARTS}
    extras = Extras(images, checkpoints_in(context.checkpoints, code, **common), context.label)
    try:
        return run_study(build_inputs(dataset, study.features, device), study, extras)
    except ValueError as error:
        raise UserError(f"{context.item}: {error}") from None


def run_study(inputs: Inputs, study: RegressionStudy, extras: Extras) -> Outcome:
    """Run a study with its settings; only its own module is imported.

    Raises:
        ValueError: the inputs do not fit the study, such as capsules larger than the inputs.
    """
    outcome: Outcome = import_module(f"{__package__}.{study.study}").run(inputs, study, extras)
    return outcome
