"""What an evaluation is given."""

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
    """The inputs of the evaluation of a trained run.

    Attributes:
        models: one per replica.
        sections: sections of `params.yaml` that the stage depends on, by name; each package uses its own.
        official: reads affNIST's own test images; None unless the parameters request them and the image size matches.
        title: shown next to progress bars.
    """

    models: Sequence[Model]
    dataset: Dataset
    run: RunSettings
    sections: Mapping[str, Section]
    official: Callable[[], Dataset | None]
    device: torch.device
    title: str
