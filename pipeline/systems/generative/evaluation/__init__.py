"""The evaluation of a trained capsule model: probes, and the failure analysis of document 000, section 5.4."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.learning.model import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.probes import evaluation
from pipeline.probes.features import batches
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, spread, spread_each, stack_replicas
from pipeline.systems.generative.evaluation.consistency import part_use
from pipeline.systems.generative.evaluation.examples import evaluation_examples, object_examples
from pipeline.systems.generative.evaluation.presences import presence_measures
from pipeline.systems.generative.evaluation.templates import template_copies
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Evaluate all models: probes, failures, and information in presences. The first model gives arrays for figures.

    Failures are measured on the first test images: the deviation of poses from the image's rotation (Figure 5), the
    share of templates that are copies (Figure 6), and the consistency of `part_use` for each range of rotations, in
    degrees (Figure 7). Figure 7 needs models trained on each range (stage `sweep`). The models here are a control: if
    parts do not move with the image, their consistency falls as the range grows, although the training is the same.
    """
    outcome = evaluation.evaluate(inputs)
    models = of_kind(GenerativeModel, inputs.models)
    params = inputs.params.evaluate
    failures: FailureParams = inputs.params.section("failures")
    images, labels = inputs.dataset.part("test")
    few, classes = images[: failures.images], labels[: failures.images]
    turned = stack_replicas([equivariance(model, few, failures.turns) for model in models])
    turned["angle"] = turned["angle"].map("{:g}".format)
    by_measure = turned.melt(id_vars=["replica", "angle"], var_name="measure")
    presences = spread_each([presence_measures(model, images, params.seed) for model in models])
    numbers = {
        **outcome.numbers,
        "test": {**outcome.numbers["test"], **presences},
        "equivariance": {"parts": nest(by_measure, ["angle", "measure"], "value")},
        "templates": spread_each([template_copies(model, few, failures) for model in models]),
        "part_use": {
            f"{angle:g}": {
                "consistency": spread(part_use(each, few, classes, angle, failures.seed)[0] for each in models)
            }
            for angle in params.angles
        },
    }
    first = ("test.binary_information", "probe.t0_binary.refit.rotated_0")  # do presences carry information?
    headline = tuple(dict.fromkeys((*first, *outcome.headline)))[:MOST_HEADLINES]
    arrays = evaluation_examples(models[0], params.seed) | object_examples(models[0], images, labels)
    return replace(outcome, numbers=numbers, headline=headline, arrays={**arrays})


@torch.no_grad()
def equivariance(model: GenerativeModel, images: NDArray[np.uint8], angles: Sequence[float]) -> pd.DataFrame:
    """Compare the poses of parts in rotated images with the rotated poses of parts in upright images (Figure 5).

    Let I + A be the poses in an upright image (`pipeline.layers.poses`). An encoder that finds the same arrangement of
    parts at every angle gives poses R (I + A) in the image rotated by R. Deviations from R (I + A) are measured for the
    rotated image's poses and for I + A. If both deviations are equal, poses do not follow the rotation.

    A deviation is a root mean square over images, parts and a pose's six numbers, in units of the image's half width.
    Parts are weighted by the product of their presences in the upright and in the rotated image, because the pose of an
    absent part means nothing. Images are uint8 `[N, 1, S, S]`.

    Returns:
        one row per angle, with columns angle (degrees), deviation (of the rotated image's poses), unfollowed (the
        deviation of I + A) and missed (deviation / unfollowed).
    """

    def parts(angle: float) -> tuple[Tensor, Tensor]:
        """Presences `[N, P]` and poses `[N, P, 2, 3]` of parts in the images rotated by `angle`."""
        found = []
        for pixels in batches(images, model.device):
            turns = poses.rotation(torch.full((len(pixels),), angle, device=model.device))
            posterior = model.encode(warps.warp(pixels, turns) if angle else pixels)
            found.append((posterior.part_logits, posterior.part_poses))
        y, A = map(torch.cat, zip(*found, strict=True))
        return (y / model.temperature).sigmoid(), poses.to_matrix(A)

    (present, upright), rows = parts(0.0), []
    for angle in map(float, angles):
        t, found = parts(angle)
        expected = poses.compose(poses.rotation(torch.full((1, 1), angle, device=model.device)), upright)
        weight = t * present
        deviation, unfollowed = (
            float(((weight * ((A - expected) ** 2).mean((-1, -2))).sum() / weight.sum().clamp_min(1e-12)).sqrt())
            for A in (found, upright)
        )
        rows.append([angle, deviation, unfollowed, deviation / max(unfollowed, 1e-12)])
    return pd.DataFrame(rows, columns=["angle", "deviation", "unfollowed", "missed"])
