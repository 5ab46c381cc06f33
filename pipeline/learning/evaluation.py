"""The inputs of the evaluation of a trained run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.learning.settings import RunSettings

if TYPE_CHECKING:
    from pipeline.params import Params


@dataclass(frozen=True)
class EvaluationInputs:
    """What the evaluation of a trained run is given.

    Attributes:
        models: one per replica.
        official: reads affNIST's own test images, where the parameters ask for them and the images' size fits.
        title: shown beside progress bars.
    """

    models: Sequence[Model]
    dataset: Dataset
    run: RunSettings
    params: Params
    official: Callable[[], Dataset | None]
    device: torch.device
    title: str
