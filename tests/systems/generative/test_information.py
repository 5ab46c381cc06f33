"""Information of presences against closed forms, bounds, and one estimator against another."""

import math

import pytest
import torch
from torch import Tensor

from pipeline.systems.generative.model.distributions import logistic_noise, presence_log_prob
from pipeline.systems.generative.model.information import (
    binary_information,
    information_by_object,
    joint_information,
    presence_kl,
    routing_entropies,
)

N, O = 512, 5


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


@pytest.mark.parametrize("temperature", [0.25, 1.0])
@pytest.mark.parametrize("distance", [0.0, 1e-3, 0.009, 0.011, 0.5, -3.0, 20.0])
def test_kl_is_the_integral_at_any_temperature(distance: float, temperature: float) -> None:
    prior = torch.tensor(-1.2, dtype=torch.float64)
    y = torch.linspace(-400, 400, 800_001, dtype=torch.float64)
    p, q = (presence_log_prob(y, logits, temperature) for logits in (prior, prior + distance))
    expected = torch.trapezoid(q.exp() * (q - p), y).item()
    assert presence_kl(prior + distance, prior).item() == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_routing_entropies_tell_a_fixed_parent_from_one_that_follows_the_image() -> None:
    """Three parts: always the first of four parents; undecided between four; sure of one of four, in turn."""
    first, undecided = torch.tensor([1.0, 0, 0, 0]).expand(8, 4), torch.full((8, 4), 0.25)
    in_turn = torch.eye(4).repeat(2, 1)
    given, of_mean = routing_entropies(torch.stack([first, undecided, in_turn], dim=1))
    torch.testing.assert_close(given, torch.tensor([0, math.log(4), 0]))
    torch.testing.assert_close(of_mean, torch.tensor([0, math.log(4), math.log(4)]))


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
