"""The failure analysis of a trained run (document 000, section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from pipeline.data.datasets import Dataset
from pipeline.results.spread import nest, spread, stack_replicas
from pipeline.systems.generative.evaluation.consistency import part_use
from pipeline.systems.generative.evaluation.equivariance import equivariance
from pipeline.systems.generative.evaluation.examples import Arrays
from pipeline.systems.generative.evaluation.templates import copies, drawn, template_copies
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams


def failure_analysis(
    models: Sequence[GenerativeModel], dataset: Dataset, failures: FailureParams, device: torch.device
) -> tuple[dict[str, Any], Arrays]:
    """Whether poses turn with the image, and which templates are copies (Figures 5 and 6).

    Returns:
        over replicas, equivariance by layer, angle and measure, and templates by measure; the first replica's arrays of
        templates.
    """
    images = dataset.part("test")[0][: failures.images]
    turned = stack_replicas([equivariance(model, images, failures.turns, device) for model in models])
    by_measure = turned.assign(angle=turned["angle"].map("{:g}".format)).melt(
        id_vars=["replica", "layer", "angle"], var_name="measure"
    )
    found = [template_copies(model, images, failures, device) for model in models]
    numbers = {
        "equivariance": nest(by_measure, ["layer", "angle", "measure"], "value"),
        "templates": _over_replicas([each for each, _ in found]),
    }
    return numbers, found[0][1]


def part_use_analysis(
    models: Sequence[GenerativeModel], dataset: Dataset, angle: float, failures: FailureParams, device: torch.device
) -> tuple[dict[str, Any], Arrays]:
    """Consistency of part use, and copies among templates, after training within +-angle degrees (Figure 7).

    Returns:
        over replicas, consistency, overlap, and duplicates by measure; the first replica's arrays of digits of one
        class.
    """
    images, classes = dataset.part("test")
    images, classes = images[: failures.images], classes[: failures.images]
    found = [part_use(model, images, classes, angle, failures.seed, device) for model in models]
    numbers = {
        **_over_replicas([each for each, _ in found]),
        "duplicates": _over_replicas([copies(drawn(model, images, device)[0], failures)[0] for model in models]),
    }
    return numbers, found[0][1]


def part_use_by_range(
    models: Sequence[GenerativeModel],
    dataset: Dataset,
    angles: Sequence[float],
    failures: FailureParams,
    device: torch.device,
) -> dict[str, Any]:
    """Consistency of part use and overlap, over replicas, by the range of the test images' rotations (degrees).

    The control of Figure 7: consistency falls with this range for any training if parts stay in their places while the
    images turn, so a model trained on a wide range is compared with these models on images of that range.
    """
    images, classes = dataset.part("test")
    images, classes = images[: failures.images], classes[: failures.images]
    return {
        f"{angle:g}": _over_replicas(
            [part_use(model, images, classes, angle, failures.seed, device)[0] for model in models]
        )
        for angle in angles
    }


def _over_replicas(numbers: Sequence[dict[str, float]]) -> dict[str, Any]:
    table = pd.DataFrame(numbers)
    return {str(name): spread(table[name]) for name in table}
