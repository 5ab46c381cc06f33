"""The information about the image that the presences of objects, t0, carry.

Objects are encoded from parts without noise (`GenerativeModel.encode`), as for features. Noise of the parts would
change the objects' log odds, and this change would count as information about the image.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.probes.features import batches
from pipeline.systems.generative.model.distributions import logistic_noise
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.information import (
    binary_information,
    information_by_object,
    joint_information,
    presence_kl,
)

MOST_IMAGES = 1000
"""Maximum number of images measured (the first ones). `presence_information` is at most the log of this number."""
SAMPLES = 4
"""Samples of t0 per image for `presence_information` and `binary_information`."""


@torch.no_grad()
def presence_measures(
    model: GenerativeModel, images: NDArray[np.uint8], seed: int, device: torch.device
) -> dict[str, float]:
    """Measures of t0 on uint8 `images [N, 1, S, S]`; information and divergences in nats.

    Returns:
        by name:
        presence_information: Monte Carlo estimate of the mutual information of t0 and the image (`joint_information`).
        binary_information: mutual information of the image and t0 rounded to 0 or 1.
        presence_information_by_object: mutual information of one presence and the image, summed over objects. It is
            at least `presence_information`, up to the error of sampling.
        presence_kl: mean over images of KL(q(t0 | x) || prior), summed over objects. It exceeds
            `presence_information_by_object` by the divergence of the mean posteriors from the prior.
    """
    pixels = batches(images[:MOST_IMAGES], device)
    logits = torch.cat([model.encode(each).object_logits for each in pixels]).double()
    generator = torch.Generator().manual_seed(seed)  # on the CPU: every device sees the same noise
    noise = [logistic_noise(tuple(logits.shape), generator, "cpu").to(logits) for _ in range(SAMPLES)]
    prior = math.log(model.params.object_presence) - math.log1p(-model.params.object_presence)
    found = {
        "presence_information": torch.stack([joint_information(logits, each) for each in noise]).mean(),
        "binary_information": torch.stack([binary_information(logits, each) for each in noise]).mean(),
        "presence_information_by_object": information_by_object(logits).sum(),
        "presence_kl": presence_kl(logits, prior).sum(-1).mean(),
    }
    return {name: float(value) for name, value in found.items()}
