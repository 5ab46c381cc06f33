"""The inputs of the evaluation of a trained run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.learning.settings import RunSettings
from pipeline.settings import Section


@dataclass(frozen=True)
class EvaluationInputs:
    """What the evaluation of a trained run is given.

    Attributes:
        models: one per replica.
        sections: of `params.yaml` that the stage depends on, by name; each room knows its own.
        official: reads affNIST's own test images, where the parameters ask for them and the images' size fits.
        title: shown beside progress bars.
    """

    models: Sequence[Model]
    dataset: Dataset
    run: RunSettings
    sections: Mapping[str, Section]
    official: Callable[[], Dataset | None]
    device: torch.device
    title: str
