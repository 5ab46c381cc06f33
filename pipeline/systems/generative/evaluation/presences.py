"""How much information about the image is in t0, the presences of the objects.

Objects are encoded from parts without noise (`GenerativeModel.encode`), as for the features of probes. Noise of the
parts would change the objects' log odds, and this change would be mistaken for information about the image.

A probe on log odds does not measure the information in t0. The log odds may vary between images much less than the
logistic noise that sampling adds. But a probe standardises the log odds, which enlarges small variations.

Shapes: N images, O objects.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pipeline.probes.features import batches
from pipeline.systems.generative.model.distributions import (
    LOGISTIC_ENTROPY,
    ROWS,
    joint_information,
    logistic_noise,
    presence_kl,
    presence_log_prob,
)
from pipeline.systems.generative.model.generative_model import GenerativeModel

MOST_IMAGES = 1000
"""Maximum number of images measured (the first ones). `presence_information` is at most the log of this number."""
SAMPLES = 4
"""Samples of t0 per image for `presence_information` and `binary_information`."""
_TAIL = 20.0
"""Distance of the integration limits from the lowest and highest log odds. Each tail has a mass below e^-20."""
_POINTS = 513
"""Points of the trapezoidal rule. If log odds span at most 200, the step is below 1/2 and the error below 1e-6 nats."""


@torch.no_grad()
def presence_measures(model: GenerativeModel, images: NDArray[np.uint8], seed: int) -> dict[str, float]:
    """Measures of t0 on uint8 `images [N, 1, S, S]`; information and divergences in nats.

    Returns:
        by name:
        presence_information: Monte Carlo estimate of the mutual information of t0 and the image (`joint_information`).
        binary_information: mutual information of the image and t0 rounded to 0 or 1.
        presence_information_by_object: mutual information of one presence and the image, summed over objects. It is
            at least `presence_information`, up to the error of sampling.
        presence_kl: mean over images of KL(q(t0 | x) || prior), summed over objects. It exceeds
            `presence_information_by_object` by the sum over objects of the mean posterior's divergence from the prior.
    """
    pixels = batches(images[:MOST_IMAGES], model.device)
    logits = torch.cat([model.encode(each).object_logits for each in pixels]).double()
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that noise is the same on all devices
    noise = [logistic_noise(tuple(logits.shape), generator, "cpu").to(logits) for _ in range(SAMPLES)]
    prior = math.log(model.params.object_presence) - math.log1p(-model.params.object_presence)
    found = {
        "presence_information": torch.stack([joint_information(logits, each) for each in noise]).mean(),
        "binary_information": torch.stack([binary_information(logits, each) for each in noise]).mean(),
        "presence_information_by_object": information_by_object(logits).sum(),
        "presence_kl": presence_kl(logits, prior).sum(-1).mean(),
    }
    return {name: float(value) for name, value in found.items()}


def binary_information(logits: Tensor, noise: Tensor) -> Tensor:
    """`joint_information` of presences that are rounded to 1 if the sampled logit is above 0, and to 0 otherwise.

    It is at most O log 2. It is also at most the information of relaxed presences, because rounding loses information.
    """
    on = (logits + noise > 0).to(logits)
    off = F.softplus(logits).sum(-1)  # rounded presences b: log p(b | x) = sum_o b_o logits_o - softplus(logits_o)
    own = (on * logits).sum(-1) - off
    mixture = [(rows @ logits.T - off).logsumexp(-1) for rows in on.split(ROWS)]
    return (own - torch.cat(mixture)).mean() + math.log(len(logits))


def information_by_object(logits: Tensor) -> Tensor:
    """Mutual information of each single presence and the image, `[O]`, from log odds `[N, O]` by numerical integration.

    The sum over objects is at least the joint information, because presences are independent given the image. In the
    sum, information that several objects share is counted once for each of these objects.
    """
    unit = torch.linspace(0, 1, _POINTS, dtype=logits.dtype, device=logits.device)
    found = []
    for own in logits.unbind(-1):
        low, width = own.amin() - _TAIL, own.amax() - own.amin() + 2 * _TAIL
        log_density = presence_log_prob(low + width * unit, own.unsqueeze(-1), 1.0)  # (N, points)
        log_mean = log_density.logsumexp(0) - math.log(len(own))
        step = width / (_POINTS - 1)
        entropy = -(log_mean.exp() * log_mean).sum() * step  # both ends are near 0, so they are not halved
        found.append(entropy - LOGISTIC_ENTROPY)
    return torch.stack(found)
