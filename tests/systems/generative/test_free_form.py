"""Free-form inference: each image by itself, never worse than its start, objects at an optimum for their parts, and the
model left as it was.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from small import ENGINES, SIZE, SMALL, engine
from torch import Tensor

from pipeline.systems.generative.inference.analytic_bound import STATE, analytic_bound, pack, unpack
from pipeline.systems.generative.inference.free_form import CURVE_POINTS, minimise_bound, optimise
from pipeline.systems.generative.inference.methods import expected_bound, refine_objects
from pipeline.systems.generative.model.distributions import Capsules, join
from pipeline.systems.generative.model.generative_model import TEMPLATE_GAIN, GenerativeModel
from pipeline.systems.generative.settings import Engine, GenerativeModelParams

COUNT = 5
PARTS = STATE * int(SMALL["parts"])
"""Numbers in the states of the parts."""
FLAT = 0.02
"""Nats per unit: the gradient where the bound rises by 1e-4 nats no more."""
CLOSE = 0.01
"""Log odds of t0 that differ by less are the same; between images they differ by a tenth to a quarter."""


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def adam(steps: int, learning_rate: float) -> Engine:
    return engine("adam", steps=steps, learning_rate=learning_rate)


ALL = [adam(60, 0.05), engine("l-bfgs", steps=40), engine("gauss-newton", steps=20)]


@torch.no_grad()
def bound(model: GenerativeModel, images: Tensor, states: Tensor) -> Tensor:
    return analytic_bound(model, images, states)


@pytest.mark.parametrize("asked", ALL, ids=lambda engine: engine.method)
def test_the_bound_rises_and_the_curve_shows_it(model: GenerativeModel, images: Tensor, asked: Engine) -> None:
    found = optimise(model, images, asked, generator())
    assert (found.bounds["after"] > found.bounds["before"]).all()
    assert found.bounds["after"].mean() > found.bounds["before"].mean() + 5
    assert found.errors["after"].mean() < found.errors["before"].mean()
    rounds = found.curve["round"].tolist()
    assert rounds[:4] == [0, 1, 2, 3]
    assert set(rounds[:-1]) <= {0, *CURVE_POINTS}
    assert rounds == sorted(set(rounds))
    assert found.curve["bound"].iloc[-1] > found.curve["bound"].iloc[0]
    assert found.curve["pixel_error"].iloc[-1] < found.curve["pixel_error"].iloc[0]
    assert found.curve["evaluations"].iloc[-1] == pytest.approx(found.evaluations.double().mean().item())
    assert found.curve["seconds"].is_monotonic_increasing
    assert found.seconds >= found.curve["seconds"].iloc[-1] > 0


def test_no_image_ends_worse_than_it_began(model: GenerativeModel, images: Tensor) -> None:
    """Two images start near their best, where large steps only lead away: they keep their start, the others do not."""
    good = optimise(model, images, adam(80, 0.05), generator()).posteriors["after"]
    near = torch.arange(COUNT) < 2
    mixed = torch.where(near.unsqueeze(1), pack(good), pack(model.encode(images))).detach()
    found = optimise(model, images, adam(4, 0.3), generator(), unpack(mixed, PARTS // STATE))
    assert (found.bounds["after"] >= found.bounds["before"]).all()
    kept = found.bounds["after"] == found.bounds["before"]
    assert torch.equal(kept, near)
    start, end = pack(found.posteriors["before"]), pack(found.posteriors["after"])
    assert torch.equal(end[kept], start[kept])
    assert (end[~kept] != start[~kept]).all(1).all()
    assert torch.equal(found.errors["after"][kept], found.errors["before"][kept])


def test_the_start_is_the_encoders_output_and_its_bound_the_amortised_one(
    model: GenerativeModel, images: Tensor
) -> None:
    """Where presences do not vary between samples, the encoder's own guide and the free-form start agree."""
    found = optimise(model, images, adam(1, 1e-6), generator())
    torch.testing.assert_close(pack(found.posteriors["before"]), pack(model.encode(images)))
    noise = torch.zeros(COUNT, model.noise_size, dtype=torch.float64)
    free = expected_bound(model, images, found.posteriors["before"], noise)
    torch.testing.assert_close(free.bound, model.trace_bound(images, noise).bound)


def test_a_restart_goes_on_from_where_it_is_told(model: GenerativeModel, images: Tensor) -> None:
    """`once` is what the engine finds without restarts, and can be the start of another optimisation. Of two results
    the better one is kept.
    """
    asked, once = (engine("gauss-newton", steps=10, restarts=restarts) for restarts in (2, 0))
    found, without = optimise(model, images, asked, generator()), optimise(model, images, once, generator())
    better, worse = (bound(model, images, pack(each.posteriors["after"])) for each in (found, without))
    assert (better >= worse - 1e-9).all()
    assert (found.evaluations > without.evaluations).all()
    torch.testing.assert_close(pack(found.posteriors["once"]), pack(without.posteriors["after"]))
    torch.testing.assert_close(pack(without.posteriors["once"]), pack(without.posteriors["after"]))
    assert not torch.allclose(found.bounds["after"], without.bounds["after"])
    further = optimise(model, images, asked, generator(), found.posteriors["once"])
    assert torch.equal(further.posteriors["before"].part_poses, found.posteriors["once"].part_poses)
    torch.testing.assert_close(further.bounds["before"], without.bounds["after"])


def test_the_model_stays_as_it_is_and_can_be_trained_on(model: GenerativeModel, images: Tensor) -> None:
    model.template_weights.requires_grad_(False)  # what was frozen before stays frozen
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimise(model, images, adam(5, 0.1), generator())
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name])
        assert value.requires_grad == (name != "template_weights")
        assert value.grad is None, "no gradient of the model was computed, let alone kept"
    loss, _ = model(images, torch.zeros(COUNT, model.noise_size).double(), torch.tensor(9.0))
    loss.backward()
    assert model.M.grad is not None


def test_poses_that_were_moved_away_are_found_again() -> None:
    """Pictures rendered from known poses, which an object explains; started a little off, every image comes nearer."""
    torch.manual_seed(3)
    params = GenerativeModelParams(**SMALL | {"pixel_sd": 0.05, "template_scale": 0.6})
    model = GenerativeModel(params, SIZE).double()
    with torch.no_grad():
        model.template_weights.copy_(torch.randn_like(model.template_weights) * 3 / TEMPLATE_GAIN)
    images_shown, parts, objects = 6, params.parts, params.objects
    A0 = torch.zeros(images_shown, objects, 6, dtype=torch.float64)
    A0[:, 0] = torch.randn(images_shown, 6, dtype=torch.float64) * 0.15
    y0 = torch.tensor([4.0, -4.0, -4.0], dtype=torch.float64).expand(images_shown, objects)
    truth = model.parts_given_objects(y0, A0).votes[:, :, 1].detach()
    y1 = torch.full((images_shown, parts), 8.0, dtype=torch.float64)
    with torch.no_grad():
        images = model.draw(join(y1, truth)).unsqueeze(1)
    moved = truth + torch.randn_like(truth) * 0.06

    found = optimise(model, images, adam(150, 0.02), generator(), Capsules(y1, moved, y0, A0))
    before, after = ((poses - truth).square().sum((1, 2)) for poses in (moved, found.posteriors["after"].part_poses))
    assert (after < before).all()
    assert after.mean() < 0.5 * before.mean()
    assert (found.errors["after"] < 0.3 * found.errors["before"]).all()


# ---- without the estimates and the curve


@pytest.fixture
def frozen(model: GenerativeModel) -> GenerativeModel:
    return model.requires_grad_(False)


@pytest.fixture
def start(frozen: GenerativeModel, images: Tensor) -> Tensor:
    return pack(frozen.encode(images))


def slope(model: GenerativeModel, images: Tensor, states: Tensor) -> Tensor:
    """The largest derivative of the whole bound by a number of an object, of each image."""
    x = states.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(analytic_bound(model, images, x).sum(), x)
    return gradient[:, PARTS:].abs().amax(1)


def t0(states: Tensor) -> Tensor:
    return unpack(states, PARTS // STATE).object_logits


@pytest.mark.parametrize("method", ["adam", "l-bfgs", "gauss-newton"])
def test_an_image_fares_as_it_does_alone(frozen: GenerativeModel, images: Tensor, start: Tensor, method: str) -> None:
    """When it leaves the batch, too, does not depend on its neighbours; the progress is seen after every round, and the
    values are those of the bound.
    """
    own = {"bound": "analytic", "learning_rate": 0.1} if method == "adam" else {"restarts": 0}
    asked = engine(method, steps=60, tolerance=1.0, **own)
    seen: list[tuple[int, float]] = []
    together = minimise_bound(
        frozen, images, start, asked, generator(), lambda each: seen.append((each.rounds, each.values.sum().item()))
    )
    assert [rounds for rounds, _ in seen] == list(range(1, together.rounds + 1))
    assert all(after <= before for (_, before), (_, after) in pairwise(seen))
    before, after = (bound(frozen, images, states) for states in (start, together.states))
    assert (after > before).all()
    torch.testing.assert_close(-together.values, after, rtol=1e-9, atol=1e-9)
    for index in range(0, COUNT, 2):
        row = torch.tensor([index])
        alone = minimise_bound(frozen, images[row], start[row], asked, generator())
        torch.testing.assert_close(alone.values, together.values[row], rtol=1e-6, atol=1e-6)
        assert torch.equal(alone.evaluations, together.evaluations[row])


def test_refined_objects_are_an_optimum_for_their_parts(frozen: GenerativeModel, images: Tensor, start: Tensor) -> None:
    settled, rise = refine_objects(frozen, images, start)
    assert (slope(frozen, images, start) > 5 * FLAT).all()
    assert (slope(frozen, images, settled) < FLAT).all()
    assert (rise > 0).all()
    before, after = (bound(frozen, images, states) for states in (start, settled))
    torch.testing.assert_close(after - before, rise, rtol=1e-9, atol=1e-9)
    assert torch.equal(settled[:, :PARTS], start[:, :PARTS])
    # Another optimiser, on the whole bound, finds nothing better close by.
    objects = settled[:, PARTS:].clone().requires_grad_()
    optimiser = torch.optim.LBFGS([objects], max_iter=200, tolerance_change=1e-12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = -analytic_bound(frozen, images, torch.cat([start[:, :PARTS], objects], dim=1)).sum()
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    best = torch.cat([start[:, :PARTS], objects.detach()], dim=1)
    assert (bound(frozen, images, best) - after).max() < 1e-3
    assert (t0(best) - t0(settled)).abs().max() < CLOSE


@pytest.mark.parametrize("name", list(ENGINES))
def test_after_every_engine_objects_are_refined(
    frozen: GenerativeModel, images: Tensor, start: Tensor, name: str
) -> None:
    found = minimise_bound(frozen, images, start, engine(name), generator())
    assert (slope(frozen, images, found.once) < FLAT).all()
    assert (slope(frozen, images, found.states) < FLAT).all()
    unsettled = minimise_bound(frozen, images, start, engine(name), generator(), refine=False)
    assert (slope(frozen, images, unsettled.states) > FLAT).any()


def test_noise_on_log_odds_stays_in_t0_unless_objects_are_refined(
    frozen: GenerativeModel, images: Tensor, start: Tensor
) -> None:
    """Restarts with several seeds from one optimum: how much t0 then differs between the seeds."""
    once, again = (engine("gauss-newton", steps=40, restarts=restarts) for restarts in (0, 1))
    optimum = minimise_bound(frozen, images, start, once, generator()).states

    def scatter(logit_sd: float, refine: bool) -> float:
        seeds = [torch.Generator().manual_seed(seed) for seed in range(5)]
        found = [
            minimise_bound(frozen, images, optimum, again, each, logit_sd=logit_sd, refine=refine) for each in seeds
        ]
        return torch.stack([t0(each.states) for each in found]).std(0).mean().item()

    kicked, between_images = scatter(1.0, refine=False), t0(optimum).std(0).mean().item()
    assert kicked > 0.5 * between_images
    assert scatter(0.0, refine=False) < kicked / 2, "poses only"
    assert scatter(1.0, refine=True) < min(kicked, between_images) / 2
