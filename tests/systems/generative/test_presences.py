"""Relaxed presences against torch's own logistic relaxation, at its limits, and by frequency."""

import math

import pytest
import torch
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli

from pipeline.systems.generative.model.distributions import RelaxedPresence, presence_log_prob


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
    torch.manual_seed(0)
    count, probability = 40_000, torch.tensor([0.05, 0.5, 0.9])
    y = RelaxedPresence(probability.logit(), temperature).sample(torch.Size([count]))
    assert y.shape == (count, 3)
    sd = (probability * (1 - probability) / count).sqrt()
    assert ((y > 0).float().mean(0) - probability).abs().lt(4 * sd).all()
    assert y[:, 1].std().item() == pytest.approx(math.pi / math.sqrt(3) / temperature, rel=0.04)
    assert y[:, 1].mean().abs() < 4 * y[:, 1].std() / 200
