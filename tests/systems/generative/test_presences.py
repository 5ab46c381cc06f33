"""Relaxed presences against torch's own logistic relaxation and by frequency; their information against closed forms,
bounds and one estimator against another; what is measured of them on a model.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli

from pipeline.data.datasets import Dataset
from pipeline.systems.generative.evaluation.presences import (
    SAMPLES,
    binary_information,
    information_by_object,
    presence_measures,
)
from pipeline.systems.generative.model.distributions import (
    RelaxedPresence,
    joint_information,
    logistic_noise,
    presence_kl,
    presence_log_prob,
)
from pipeline.systems.generative.model.generative_model import GenerativeModel

N, O = 512, 5


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 2.5])
def test_log_prob_is_that_of_torch(temperature: float) -> None:
    y = torch.linspace(-6, 6, 25, dtype=torch.float64)
    logits = torch.linspace(-4, 4, 9, dtype=torch.float64)[:, None]
    ours = RelaxedPresence(logits.expand(9, 25), temperature).log_prob(y)
    theirs = LogitRelaxedBernoulli(torch.tensor(temperature, dtype=torch.float64), logits=logits).log_prob(y)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("y", [-1000.0, 1000.0])
def test_extreme_logits_score_as_their_tails_do(y: float) -> None:
    """Far out the log density falls linearly, -|y| at temperature 1, in single precision too."""
    value = torch.tensor(y, requires_grad=True)
    scored = presence_log_prob(value, torch.tensor(0.5), 1.0)
    scored.backward()
    assert scored.item() == pytest.approx(-1000.0 + math.copysign(0.5, y))
    assert value.grad is not None
    assert value.grad.item() == pytest.approx(-math.copysign(1.0, y))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_are_on_as_often_as_their_probability_says_with_the_spread_of_a_logistic(temperature: float) -> None:
    """P(y > 0) is the probability at any temperature, Var y = pi^2 / (3 tau^2). Fails by chance in fewer than 1 of
    10,000 runs: 4 sd; the standard error of the sd is below 0.7 %.
    """
    count, probability = 40_000, torch.tensor([0.05, 0.5, 0.9])
    y = RelaxedPresence(probability.logit(), temperature).sample(torch.Size([count]))
    assert y.shape == (count, 3)
    sd = (probability * (1 - probability) / count).sqrt()
    assert ((y > 0).float().mean(0) - probability).abs().lt(4 * sd).all()
    assert y[:, 1].std().item() == pytest.approx(math.pi / math.sqrt(3) / temperature, rel=0.04)
    assert y[:, 1].mean().abs() < 4 * y[:, 1].std() / 200


# ---- information


def estimated(logits: Tensor, samples: int = 20) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = [logistic_noise(tuple(logits.shape), generator, "cpu").double() for _ in range(samples)]
    return torch.stack([joint_information(logits, each) for each in noise]).mean()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def halves(objects: int = 1, apart: float = 40.0) -> Tensor:
    """Log odds `[N, objects]`; each object is on in one half of the images, independently of the others."""
    image = torch.arange(N).unsqueeze(1)
    on = image // 2 ** torch.arange(objects) % 2
    return apart * (on - 0.5).double()


def test_equal_posteriors_carry_no_information() -> None:
    logits = random(O).expand(N, O)
    torch.testing.assert_close(information_by_object(logits), torch.zeros(O).double(), rtol=0, atol=1e-6)
    assert abs(estimated(logits).item()) < 1e-9


def test_separated_halves_carry_log_2_by_object() -> None:
    logits = halves(O)
    torch.testing.assert_close(information_by_object(logits), torch.full((O,), math.log(2)).double(), rtol=0, atol=1e-4)
    assert estimated(logits).item() == pytest.approx(O * math.log(2), abs=1e-3)


@pytest.mark.parametrize("scale", [0.01, 0.2, 1.0, 5.0])
def test_monte_carlo_agrees_with_integration_for_one_object(scale: float) -> None:
    """The log ratio's sd is below 1.5 sqrt(information): 4 standard errors, exceeded in 1 of 10,000 runs."""
    logits = scale * random(N, 1)
    exact, samples = information_by_object(logits).item(), 20
    assert estimated(logits, samples).item() == pytest.approx(exact, abs=4 * 1.5 * (exact / (N * samples)) ** 0.5)


def test_no_estimate_exceeds_the_log_of_the_number_of_images() -> None:
    few = 1000 * random(8, O)
    assert estimated(few).item() == pytest.approx(math.log(8), abs=1e-6)


@pytest.mark.parametrize("distance", [0.0, 1e-3, 0.009, 0.011, 0.5, -3.0, 20.0])
def test_kl_is_the_integral_at_any_temperature(distance: float) -> None:
    """It does not depend on the temperature: here 1/4."""
    prior = torch.tensor(-1.2, dtype=torch.float64)
    y = torch.linspace(-400, 400, 800_001, dtype=torch.float64)
    p, q = (presence_log_prob(y, logits, 0.25) for logits in (prior, prior + distance))
    expected = torch.trapezoid(q.exp() * (q - p), y).item()
    assert presence_kl(prior + distance, prior).item() == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_information_of_binary_presences_is_that_by_enumeration() -> None:
    """Of all 2^O values with their probabilities. The log ratio's sd is below 1.5: 4 standard errors."""
    logits, samples = 2 * random(64, O), 200
    values = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * O)  # (2^O, O)
    p = torch.where(values.bool().unsqueeze(1), logits.sigmoid(), (-logits).sigmoid()).prod(-1)  # (2^O, N)
    exact = (p * (p / p.mean(1, keepdim=True)).log()).sum(0).mean().item()
    generator = torch.Generator().manual_seed(0)
    noise = [logistic_noise((64, O), generator, "cpu").double() for _ in range(samples)]
    found = torch.stack([binary_information(logits, each) for each in noise])
    assert found.mean().item() == pytest.approx(exact, abs=4 * 1.5 / (64 * samples) ** 0.5)
    relaxed = torch.stack([joint_information(logits, each) for each in noise]).mean().item()
    assert exact < relaxed - 0.05


# ---- of a model


def test_measures_by_hand_and_their_bounds(capsules: GenerativeModel, dataset: Dataset) -> None:
    """The KL divergence of logistic distributions d apart is d coth(d / 2) - 2."""
    found = presence_measures(capsules, dataset.images, 0)
    with torch.no_grad():
        posterior = capsules.encode(torch.from_numpy(dataset.images).float() / 255)
    logits, p = posterior.object_logits.double(), capsules.params.object_presence
    apart = logits - math.log(p / (1 - p))
    kl = apart / (apart / 2).tanh() - 2
    assert found["presence_kl"] == pytest.approx(kl.sum(1).mean().item(), rel=1e-4)
    noise = 0.1  # of the Monte Carlo estimate
    assert found["presence_information"] <= found["presence_information_by_object"] + noise
    assert found["presence_information_by_object"] <= found["presence_kl"]


def test_each_measure_is_of_the_log_odds_of_all_images(
    capsules: GenerativeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, generator = 2 * random(64, O), torch.Generator().manual_seed(3)
    monkeypatch.setattr(capsules, "encode", lambda images: SimpleNamespace(object_logits=logits))
    found = presence_measures(capsules, np.zeros((64, 1, 4, 4), np.uint8), 3)
    noise = [logistic_noise((64, O), generator, "cpu").double() for _ in range(SAMPLES)]
    for name, information in (("presence", joint_information), ("binary", binary_information)):
        expected = torch.stack([information(logits, each) for each in noise]).mean().item()
        assert found[f"{name}_information"] == pytest.approx(expected)
    assert found["presence_information_by_object"] == pytest.approx(information_by_object(logits).sum().item())
