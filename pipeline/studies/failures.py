"""The failure analysis of a trained run, in numbers (document 000, section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from pipeline.data.datasets import Dataset
from pipeline.models import Model
from pipeline.models.generative import GenerativeModel
from pipeline.params import FailureParams
from pipeline.studies.consistency import part_use
from pipeline.studies.equivariance import equivariance
from pipeline.studies.examples import Arrays
from pipeline.studies.summary import nest, spread, stack_replicas
from pipeline.studies.templates import copies, drawn, template_copies


def _capsules(models: Sequence[Model]) -> list[GenerativeModel]:
    return [model for model in models if isinstance(model, GenerativeModel)]


def failure_analysis(
    models: Sequence[Model], dataset: Dataset, failures: FailureParams, device: torch.device
) -> tuple[dict[str, Any], Arrays]:
    """Whether poses turn with the image, and which templates are copies (Figures 5 and 6).

    Returns:
        over replicas, equivariance by layer, angle and measure, and templates by measure; the first replica's arrays of
        templates. Nothing of models without parts.
    """
    capsules, images = _capsules(models), dataset.part("test")[0][: failures.images]
    if not capsules:
        return {}, {}
    turned = stack_replicas([equivariance(model, images, failures.turns, device) for model in capsules])
    by_measure = turned.assign(angle=turned["angle"].map("{:g}".format)).melt(
        id_vars=["replica", "layer", "angle"], var_name="measure"
    )
    found = [template_copies(model, images, failures, device) for model in capsules]
    numbers = {
        "equivariance": nest(by_measure, ["layer", "angle", "measure"], "value"),
        "templates": _over_replicas([each for each, _ in found]),
    }
    return numbers, found[0][1]


def part_use_analysis(
    models: Sequence[Model], dataset: Dataset, angle: float, failures: FailureParams, device: torch.device
) -> tuple[dict[str, Any], Arrays]:
    """Consistency of part use, and copies among templates, after training within +-angle degrees (Figure 7).

    Returns:
        over replicas, consistency, overlap, and duplicates by measure; the first replica's arrays of digits of one
        class. Nothing of models without parts.
    """
    capsules = _capsules(models)
    if not capsules:
        return {}, {}
    images, classes = dataset.part("test")
    images, classes = images[: failures.images], classes[: failures.images]
    found = [part_use(model, images, classes, angle, failures.seed, device) for model in capsules]
    numbers = {
        **_over_replicas([each for each, _ in found]),
        "duplicates": _over_replicas([copies(drawn(model, images, device)[0], failures)[0] for model in capsules]),
    }
    return numbers, found[0][1]


def _over_replicas(numbers: Sequence[dict[str, float]]) -> dict[str, Any]:
    table = pd.DataFrame(numbers)
    return {str(name): spread(table[name]) for name in table}
