"""The measurements of the sweep over rotations, for a model trained within an angle (document 000, Figure 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch

from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.learning.settings import RunSettings
from pipeline.learning.summary import best_validation
from pipeline.learning.train import Trained
from pipeline.probes.generalisation import rotation_probes
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas
from pipeline.settings import Section

if TYPE_CHECKING:
    from pipeline.studies.sweep import SweepParams

AnyRun = TypeVar("AnyRun", bound=RunSettings)


@dataclass(frozen=True)
class SweepInputs:
    """The inputs of the sweep at one angle.

    Attributes:
        models: one per replica, trained with `run` on rotations within +-`angle` degrees.
        sections: sections of `params.yaml` that the stage depends on, by name; each package uses its own.
    """

    models: Sequence[Model]
    trained: Trained
    dataset: Dataset
    run: RunSettings
    angle: float
    probe: EvaluateParams
    sections: Mapping[str, Section]
    device: torch.device


def swept(run: AnyRun, angle: float, settings: SweepParams) -> AnyRun:
    """The run for the sweep: trained on rotations within +-`angle` degrees, for a share of its own epochs.

    A share, because systems need different numbers of epochs.
    """
    augmentation = run.augmentation.model_copy(update={"rotation": float(angle)})
    shorter = run.with_epochs(math.ceil(run.training.epochs * settings.training_share))
    return shorter.model_copy(update={"replicas": settings.replicas, "augmentation": augmentation})


def sweep(inputs: SweepInputs) -> Outcome:
    """Accuracies of probes fit and tested on images rotated within the same angle, also of probes on samples."""
    probe = inputs.probe
    table = stack_replicas(
        [
            rotation_probes(model, inputs.dataset, inputs.angle, probe, inputs.device, sampled=True)
            for model in inputs.models
        ]
    )
    accuracies = nest(table, ["features"], "accuracy")
    validation = best_validation(inputs.trained.history)
    headline = [f"probe.{features}" for features in accuracies] + [f"validation.{name}" for name in validation]
    numbers = {"probe": accuracies, "validation": validation}
    return Outcome("sweep", table, numbers, tuple(headline))
