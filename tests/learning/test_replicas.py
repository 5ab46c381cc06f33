"""Several seeds as one: what stacking may not change, and clipping each replica by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from line import Line, train_line
from small import SCAE_SIZE, SIZE, STILL, small_run, squares, training
from torch import Tensor

from pipeline.learning import gradient
from pipeline.learning.gradient import Task, Trained, group_replicas, train
from pipeline.learning.replicas import Replicas, clip, count_parameters, gradient_norms, load_replica
from pipeline.learning.settings import AugmentationParams
from pipeline.systems import build_model

CPU = torch.device("cpu")

# A constant added to every score before a softmax changes nothing: these parameters have no gradient but rounding
# errors, which Adam blows up to steps of full size. They are the biases of attention pooling's scores and of the keys.
WITHOUT_EFFECT = ("pooling.project.bias", "key_value.bias", "key.bias")


def trained(variant: str, seeds: list[int], groups: list[list[int]], rotation: float = 0.0) -> Trained:
    """Three epochs of a small model, past the generative one's seeding of its objects."""
    size = SCAE_SIZE if variant == "scae" else SIZE
    run, data = small_run(variant), squares(size=size)
    augmentation = AugmentationParams(rotation=rotation, shift=1.0 if rotation else 0.0, whole_pixels=False)
    images, validation = data.part("train"), data.part("validation")
    return train(
        Task(lambda: build_model(run, size), training(epochs=3), augmentation, images, validation),
        seeds,
        CPU,
        groups=groups,
    )


@pytest.fixture
def in_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything in float64, where rounding errors are too small to be learnt from."""
    augment = gradient.augment
    monkeypatch.setattr(gradient, "augment", lambda *arguments, **named: augment(*arguments, **named).double())
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def of_history(result: Trained, column: str = "validation_loss") -> Tensor:
    ordered = result.history.sort_values(["replica", "epoch"])
    return torch.from_numpy(ordered[["replica", "epoch", column]].to_numpy(dtype=float))


@pytest.mark.parametrize("rotation", [0.0, 45.0])
@pytest.mark.parametrize("variant", ["generative", "vae", "scae", "capsnet"])
def test_stacked_and_one_after_another_give_the_same_weights(variant: str, rotation: float, in_double: None) -> None:
    together = trained(variant, [3, 4, 5], [[0, 1, 2]], rotation)
    apart = trained(variant, [3, 4, 5], [[0], [1], [2]], rotation)
    torch.testing.assert_close(together.parameters, apart.parameters, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(of_history(together), of_history(apart))
    assert together.best_epoch == apart.best_epoch
    for name in ("M", "encoder.1.weight", "seeds"):
        if name in together.parameters:
            first, second, _ = together.parameters[name]
            assert (first - second).abs().max() > 1e-3, "the seeds differ"


@pytest.mark.parametrize("variant", ["generative", "vae", "scae", "capsnet"])
def test_so_they_do_in_single_precision_within_its_tolerance(variant: str) -> None:
    together = trained(variant, [3, 4], [[0, 1]], 45.0)
    apart = trained(variant, [3, 4], [[0], [1]], 45.0)
    for name, weights in together.parameters.items():
        assert weights.dtype == torch.float32
        if not name.endswith(WITHOUT_EFFECT):
            torch.testing.assert_close(weights, apart.parameters[name], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(of_history(together), of_history(apart), rtol=1e-4, atol=1e-4)


def test_a_replica_does_not_know_its_neighbours(in_double: None) -> None:
    """Seed 7 learns the same alone, beside 3, and after 5 and 6 in a larger stack; on turned images, drawn by seed."""
    alone = trained("generative", [7], [[0]], 45.0)
    beside = trained("generative", [7, 3], [[0, 1]], 45.0)
    among = trained("generative", [5, 6, 7], [[0, 1, 2]], 45.0)
    for name, weights in alone.parameters.items():
        torch.testing.assert_close(beside.parameters[name][0], weights[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(among.parameters[name][2], weights[0], rtol=1e-8, atol=1e-8)


def test_results_stand_in_the_order_of_the_seeds_whatever_the_groups() -> None:
    seeds = [1, 2, 3, 4]
    ones = train_line(seeds, [[0], [1], [2], [3]], epochs=2)
    pairs = train_line(seeds, [[0, 1], [2, 3]], epochs=2)
    torch.testing.assert_close(pairs.parameters["w"], ones.parameters["w"])
    assert pairs.parameters["w"].shape == (4, 1)
    assert torch.equal(pairs.parameters["w"].flatten().sort(descending=True).values, pairs.parameters["w"].flatten())
    assert sorted(set(pairs.history["replica"])) == [0, 1, 2, 3]
    by_replica = pairs.history[pairs.history["epoch"] == 1].sort_values("replica")["train_w"].to_numpy()
    assert by_replica == pytest.approx([-0.16, -0.26, -0.36, -0.46])


def test_initial_values_come_from_the_seed_and_leave_the_global_state_alone() -> None:
    run = small_run()
    torch.manual_seed(99)
    expected = torch.rand(3)
    torch.manual_seed(99)
    first = Replicas(lambda: build_model(run, SIZE), [5, 6], CPU)
    assert torch.equal(torch.rand(3), expected)
    second = Replicas(lambda: build_model(run, SIZE), [6, 5], CPU)
    for name, values in first.parameters.items():
        assert torch.equal(values, second.parameters[name].flip(0))


def test_a_replica_taken_out_is_a_model_of_its_own() -> None:
    replicas = Replicas(lambda: build_model(small_run("vae"), SIZE), [5, 6], CPU)
    model = replicas.model(1)
    assert not model.training
    assert count_parameters(model) == sum(value[0].numel() for value in replicas.parameters.values())
    for name, value in model.named_parameters():
        assert torch.equal(value, replicas.parameters[name][1])
    before = {name: value.clone() for name, value in replicas.parameters.items()}
    with torch.no_grad():
        for value in model.parameters():
            value.add_(1.0)
    for name, value in replicas.parameters.items():
        assert torch.equal(value, before[name])
    other = load_replica(replicas.skeleton, before, 0)
    assert torch.equal(dict(other.named_parameters())["encoder.1.weight"], before["encoder.1.weight"][0])


def test_a_gpu_stacks_all_replicas_and_a_cpu_takes_one_at_a_time() -> None:
    assert group_replicas(3, torch.device("cuda")) == [[0, 1, 2]]
    assert group_replicas(3, CPU) == [[0], [1], [2]]


def test_gradients_are_clipped_replica_by_replica() -> None:
    gradients = {"a": torch.tensor([[3.0, 0.0], [0.3, 0.0]]), "b": torch.tensor([[[4.0]], [[0.4]]])}
    norms = gradient_norms(gradients)
    assert norms.tolist() == pytest.approx([5.0, 0.5])
    clip(gradients, norms, 1.0)
    assert gradient_norms(gradients).tolist() == pytest.approx([1.0, 0.5])
    assert gradients["a"][0].tolist() == pytest.approx([0.6, 0.0]), "shortened, not turned"
    assert gradients["b"][1].flatten().tolist() == pytest.approx([0.4]), "the other replica's is left alone"


def test_a_gradient_of_zero_stays_zero() -> None:
    gradients = {"a": torch.zeros(2, 3)}
    clip(gradients, gradient_norms(gradients), 1.0)
    assert gradients["a"].tolist() == [[0.0] * 3] * 2


def test_training_clips_before_it_steps() -> None:
    """Against Adam's 1e-8 a gradient of 1e-12 hardly counts, where one of 1 moves w by the step size."""
    free = train_line([0], epochs=1, gradient_clip=10.0)
    clipped = train_line([0], epochs=1, gradient_clip=1e-12)
    assert free.parameters["w"].item() == pytest.approx(0.04)
    assert clipped.parameters["w"].item() == pytest.approx(-0.06, abs=1e-4)
    assert clipped.history["train_gradient_norm"].item() == pytest.approx(1), "what is recorded is the norm before"


def test_every_replica_is_given_its_own_images_before_an_epoch() -> None:
    seen: list[tuple[int, float]] = []

    class Watching(Line):
        def begin_epoch(self, epoch: int, images: Tensor) -> None:
            seen.append((epoch, images.mean().item()))
            with torch.no_grad():
                self.w.fill_(images.mean())

    replicas = Replicas(Watching, [0, 1], CPU)
    images = torch.stack([torch.full((2, 1, 4, 4), 0.25), torch.full((2, 1, 4, 4), 0.75)])
    replicas.begin_epoch(4, images)
    assert seen == [(4, 0.25), (4, 0.75)]
    assert replicas.parameters["w"].flatten().tolist() == [0.25, 0.75]
    assert math.isfinite(
        replicas.gradients(images, torch.zeros(2, 2, 1), torch.tensor(4.0), torch.zeros(2, 2))[1]["loss"].sum()
    )


# ---- a start given, and parameters kept


FROZEN = ["M", "gamma", "template_weights"]


def continued(groups: list[list[int]], start: dict[str, Tensor] | None) -> Trained:
    run, data = small_run(), squares()
    images, validation = data.part("train"), data.part("validation")
    return train(
        Task(lambda: build_model(run, SIZE), training(epochs=2), STILL, images, validation),
        [3, 4],
        CPU,
        groups=groups,
        start=start,
        frozen=FROZEN,
    )


@pytest.mark.parametrize("groups", [[[0], [1]], [[0, 1]]])
def test_training_starts_where_it_is_told_and_leaves_what_is_frozen(groups: list[list[int]], in_double: None) -> None:
    """Seeding of the objects, which sets M before the second epoch, counts as training."""
    first = Replicas(lambda: build_model(small_run(), SIZE), [3, 4], CPU).parameters
    start = {name: value + 0.01 for name, value in first.items() if name != "embed.weight"}
    found = continued(groups, start).parameters
    for name, value in found.items():
        if name in FROZEN:
            assert torch.equal(value, start[name]), name
    for name in ("part_head.2.bias", "embed.weight", "c_excess"):
        assert not torch.equal(found[name], start.get(name, first[name]))
    replicas = Replicas(lambda: build_model(small_run(), SIZE), [3, 4], CPU, start)
    assert torch.equal(replicas.parameters["M"], start["M"])
    assert torch.equal(replicas.parameters["embed.weight"], first["embed.weight"])


def test_stacked_and_apart_agree_with_frozen_parameters_too(in_double: None) -> None:
    together, apart = continued([[0, 1]], None), continued([[0], [1]], None)
    torch.testing.assert_close(together.parameters, apart.parameters, rtol=1e-8, atol=1e-8)


def test_a_start_or_a_frozen_name_that_the_model_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="no parameter nothing, v"):
        Replicas(Line, [0], CPU, {"v": torch.zeros(1, 1)}, ["nothing", "w"])
