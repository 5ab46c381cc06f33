"""Do predicted probabilities agree with frequencies? Log loss, reliability and expected calibration error.

Images are put into bins of equal width by their confidence, the probability of the class that they are assigned to. Of
the n_b images in a bin b, with mean confidence c_b, a share a_b is assigned correctly. If probabilities are right, a_b
is near c_b. The expected calibration error (Guo, Pleiss, Sun and Weinberger 2017) is

    ECE = sum_b n_b / n |a_b - c_b|

It is positive even with right probabilities, because a_b then still varies around c_b. `by_chance` is its mean in that
case, with a_b taken to be normal with its binomial variance: E |a_b - c_b| = sqrt(2 / pi) sd(a_b).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.systems.regression.model.architectures import Architecture, class_scores, coupled_probabilities

CHUNK = 16_384
BINS = 10


@dataclass(frozen=True)
class Calibration:
    """How well probabilities agree with frequencies.

    Attributes:
        log_loss: mean of -log P(y | x), nats.
        ece, by_chance: the expected calibration error, and its mean if the probabilities were right; shares.
        reliability: `[BINS, 4]`, of each bin the number of images, their mean confidence, the share assigned correctly,
            and the sd of this share if the probabilities were right; 0 if it is empty.
    """

    log_loss: float
    ece: float
    by_chance: float
    reliability: NDArray[np.float64]


def calibration(probabilities: NDArray[np.float64], decided: NDArray[np.intp], y: NDArray[np.intp]) -> Calibration:
    """Calibration of `probabilities [n, m]` of images of the classes `y [n]`, assigned to the classes `decided [n]`."""
    rows = np.arange(len(y))
    confidence = probabilities[rows, decided]
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    divisor = np.maximum(count, 1)
    mean, right, variance = (
        np.bincount(bins, weights=values, minlength=BINS) / divisor
        for values in (confidence, decided == y, confidence * (1 - confidence))
    )
    sd = np.sqrt(variance / divisor)
    share = count / len(y)
    return Calibration(
        # A probability that is 0 in float64 would make the mean infinite.
        float(-np.log(np.maximum(probabilities[rows, y], np.finfo(np.float64).tiny)).mean()),
        float((share * np.abs(right - mean)).sum()),
        float((share * math.sqrt(2 / math.pi) * sd).sum()),
        np.stack([count, mean, right, sd], axis=1),
    )


def calibration_of(architecture: Architecture, W: Tensor, X: Tensor, y: Tensor) -> Calibration:
    """Calibration of weights `W [K, C, d, p]` on inputs `X [n, p]` of classes `y [n]`; probabilities in float64."""
    parts = [
        (coupled_probabilities(architecture, W.double(), rows.double()), class_scores(architecture, W, rows).argmax(1))
        for rows in X.split(CHUNK)
    ]
    probabilities, decided = (torch.cat(each) for each in zip(*parts, strict=True))
    return calibration(probabilities.cpu().numpy(), decided.cpu().numpy(), y.cpu().numpy())
