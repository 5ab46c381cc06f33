"""Measures of presences on a model: silent ones, informative ones, and what they are bounded by."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pipeline.data.datasets import Dataset
from pipeline.systems.generative.evaluation.presences import presence_measures
from pipeline.systems.generative.model.generative_model import GenerativeModel

CPU = torch.device("cpu")


def scaled(model: GenerativeModel, factor: float) -> GenerativeModel:
    """The model with what its object encoder says, presences and poses, multiplied by a factor."""
    with torch.no_grad():
        for parameter in list(model.object_head.parameters())[-2:]:
            parameter.mul_(factor)
    return model


def test_measures_by_hand_and_their_bounds(capsules: GenerativeModel, dataset: Dataset) -> None:
    """The KL divergence of logistic distributions d apart is d coth(d / 2) - 2; sds are over images."""
    found = presence_measures(capsules, dataset.images, 0, CPU)
    with torch.no_grad():
        posterior = capsules.encode(torch.from_numpy(dataset.images).float() / 255)
    logits, p = posterior.object_logits.double(), capsules.params.object_presence
    apart = logits - math.log(p / (1 - p))
    kl = apart / (apart / 2).tanh() - 2
    assert found["presence_kl"] == pytest.approx(kl.sum(1).mean().item(), rel=1e-4)
    sds = np.std(posterior.object_poses.numpy(), axis=0, ddof=1)
    assert found["object_pose_sd"] == pytest.approx(sds.mean(), rel=1e-4)
    assert found["presence_logit_sd"] == pytest.approx(logits.std(0).mean().item(), rel=1e-4)
    noise = 0.1  # of the Monte Carlo estimate
    assert found["presence_information"] <= found["presence_information_by_object"] + noise
    assert found["presence_information_by_object"] <= found["presence_kl"]
    assert found["routing_entropy"] <= found["mean_routing_entropy"] <= math.log(4)


def test_louder_presences_tell_more_and_silent_ones_nothing(capsules: GenerativeModel, dataset: Dataset) -> None:
    own = presence_measures(capsules, dataset.images, 0, CPU)
    louder = presence_measures(scaled(capsules, 30), dataset.images, 0, CPU)
    silent = presence_measures(scaled(capsules, 1e-6), dataset.images, 0, CPU)
    for name in ("presence_information", "presence_information_by_object", "presence_logit_sd", "object_pose_sd"):
        assert silent[name] == pytest.approx(0, abs=1e-4)
        assert louder[name] > max(own[name], 0.2), name
    assert silent["presence_kl"] > 0.1, "the mean posterior is not the prior: no information"
