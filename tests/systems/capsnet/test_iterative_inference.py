"""Iterative inference: energies against their definition, ends that are known by hand, and what a study tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from routing_loop import capsnet
from small import INFER, SIZE, squares
from torch import Tensor

from pipeline.errors import UserError
from pipeline.layers.dynamic_routing import unweighted_sum
from pipeline.probes.sparsity import hoyer
from pipeline.results.outcome import Outcome
from pipeline.systems.capsnet.experiments.iterative_inference import (
    descent,
    energies_and_gradients,
    infer,
    sparsity_of_inference,
)
from pipeline.systems.capsnet.model.capsnet import Layer, forward_pass
from pipeline.systems.capsnet.settings import InferCondition, InferParams

CPU = torch.device("cpu")


def measured(seeds: Sequence[int], **changes: Any) -> Outcome:
    """Of a network by seed."""
    settings = InferParams.model_validate({**INFER, "run": "capsnet", **changes})
    return sparsity_of_inference([capsnet(seed, iterations=0) for seed in seeds], squares(), settings, CPU, "infer")


@pytest.fixture(scope="module")
def found() -> Outcome:
    return measured([0, 1], steps=30)


def test_rows(found: Outcome) -> None:
    table, arrays = found.table, found.arrays
    assert len(table) == 2 * (2 + 12) * 2
    rows = table[table["replica"] == 0].set_index(["condition", "layer"])
    of_class = rows.xs("class", level="layer")
    assert (of_class["falls"].dropna() == 1).all()
    assert of_class["energy"].isna().tolist() == [True, True, *[False] * 12], "a forward pass has no energy"
    assert rows.xs("middle", level="layer")["right"].isna().all(), "only class capsules can be right"
    assert rows["saturated"].notna().groupby("condition").all().sum() == 2, "activities after inference are free"
    net, (images, labels) = capsnet(iterations=0), squares().part("test")
    pixels = torch.from_numpy(images).float() / 255
    lengths = net.encode(pixels).norm(dim=-1).numpy()
    for name, count in (("forward", len(images)), ("start", 6)):
        index = hoyer(lengths[:count])
        right = (lengths[:count].argmax(1) == labels[:count]).mean()
        expected = [count, index.mean(), index.std(ddof=1) / math.sqrt(count), right]
        measured = of_class.loc[name, ["images", "hoyer", "hoyer_standard_error", "right"]]
        np.testing.assert_allclose(measured.astype(float), expected, rtol=1e-4)
    own = lengths[np.arange(len(labels)), labels]
    assert of_class["length_right"]["forward"] == pytest.approx(own.mean(), rel=1e-5)
    others = (lengths.sum(1) - own) / 2
    assert of_class["length_others"]["forward"] == pytest.approx(others.mean(), rel=1e-5)
    energy = of_class["energy"]["free-clamped-none"]
    assert arrays["energies_free-clamped-none"][-1].sum() == pytest.approx(energy, rel=1e-5)
    np.testing.assert_allclose(np.linalg.norm(arrays["capsules_start"], axis=-1), lengths[:6], rtol=1e-4)
    assert arrays["energies_free-clamped-none"].shape == (31, 4 + 2)
    assert arrays["energies_predicted-clamped-L1-1"].shape == (31, 3 + 2)
    assert net.middle is not None
    primary = net.primary_capsules(net.feature_maps(pixels))
    inputs = unweighted_sum(primary, net.middle.transformations).norm(dim=-1).double()
    row = rows.loc["forward", "middle"]
    assert row["hoyer_inputs"] == pytest.approx(float(hoyer(inputs.numpy()).mean()), abs=1e-4)
    assert row["saturated"] == pytest.approx(float((inputs > 3).double().mean())), "n^2 / (1 + n^2) > 0.9"
    assert row["length_sd"] == pytest.approx(float((inputs**2 / (1 + inputs**2)).std(1, correction=0).mean()), rel=1e-4)


def test_an_energy_that_rises_at_any_step_does_not_count_as_falling() -> None:
    """Energies of three images over two steps: that of the second rises before it falls below its start."""
    energies = torch.tensor([[4.0, 4.0, 4.0], [3.0, 5.0, 3.0], [2.0, 2.0, 2.0]])  # (steps + 1, images)
    found = descent(energies.unsqueeze(1))
    assert found["falls"] == pytest.approx(2 / 3)
    assert found["energy"] == 2
    before_last = 11 / 3
    assert found["last_drop"] == pytest.approx((before_last - 2) / before_last), "a tenth of two steps is one"


@pytest.mark.parametrize("replica", [0, 1])
@pytest.mark.parametrize("output", ["predicted", "free"])
def test_conditions_do_what_they_must(found: Outcome, output: str, replica: int) -> None:
    table = found.table[(found.table["layer"] == "class") & (found.table["replica"] == replica)].set_index("condition")
    conditions = ("clamped-none", "clamped-L1-1", "free-none", "free-L2-1")
    start, (clamped, sparse, still, damped) = table.loc["start"], (table.loc[f"{output}-{each}"] for each in conditions)
    assert clamped["length_right"] - clamped["length_others"] > start["length_right"] - start["length_others"]
    assert clamped["length_others"] < start["length_others"]
    assert sparse["length_others"] < clamped["length_others"]
    assert still["energy"] == pytest.approx(0, abs=1e-9), "nothing pulls"
    assert still["hoyer"] == pytest.approx(start["hoyer"], rel=1e-5)
    assert damped["length_right"] < start["length_right"]
    middle = found.table.query("layer == 'middle' and replica == @replica").set_index("condition")["hoyer"]
    assert middle[f"{output}-free-none"] == pytest.approx(middle["start"], rel=1e-5), "nothing pulls there, either"


def test_free_capsules_that_l1_kills_are_silent_not_even() -> None:
    condition = {"output": "free", "label": "free", "penalty": "L1", "weight": 5.0}
    table = measured([0], steps=60, conditions=[condition]).table
    row = table[(table["condition"] == "free-free-L1-5") & (table["layer"] == "class")].iloc[0]
    assert (row["silent"], row["right"]) == (1, 0)
    assert math.isnan(row["hoyer"])


def test_inference_without_the_relu_starts_from_other_activities() -> None:
    """At step size 1e-9 nothing moves: the capsules are those of a forward pass without the first layer's ReLU."""
    how = {"output": "free", "label": "clamped", "penalty": "L1", "weight": 0.5, "rectified": False}
    arrays = measured([0], conditions=[how], steps=1, rate=1e-9).arrays
    net, capsules = capsnet(iterations=0), squares().part("test")[0][:6]
    capsules = torch.from_numpy(capsules).float() / 255
    for layer in [net.first, *net.layers()[1:]]:
        capsules = layer(capsules)
    found = arrays["capsules_free-clamped-L1-0.5-unrectified"]
    np.testing.assert_allclose(found, capsules.detach().numpy(), atol=1e-6)
    assert np.abs(found - arrays["capsules_start"]).max() > 1e-3


def condition(output: Any, label: Any, penalty: Any, weight: float = 1.0) -> InferCondition:
    return InferCondition(output=output, label=label, penalty=penalty, weight=0 if penalty == "none" else weight)


@pytest.fixture
def layers() -> list[Layer]:
    """A small CapsNet in double precision, with a middle layer and routing, and with capsules that matter."""
    return capsnet().double().layers()


@pytest.fixture
def images() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(5, 1, SIZE, SIZE, dtype=torch.float64)


TARGET = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 1]]


def total(layers: Sequence[Layer], images: Tensor, activities: Sequence[Tensor], energy: InferCondition) -> Tensor:
    """The summed energy from its definition."""
    below = [images, *activities[:-1]]
    found = torch.zeros((), dtype=images.dtype)
    for layer, x, y in zip(layers, activities, below, strict=False):
        found = found + ((x - layer(y)) ** 2).sum() / 2
    capsules = activities[-1] if energy.output == "free" else layers[-1](activities[-1])
    lengths = (capsules**2).sum(-1).sqrt()
    if energy.label == "clamped":
        found = found + ((TARGET - lengths) ** 2).sum() / 2
    return found + energy.weight * {"none": 0, "L1": lengths.sum(), "L2": (lengths**2).sum() / 2}[energy.penalty]


@pytest.mark.parametrize("output", ["predicted", "free"])
@pytest.mark.parametrize("label", ["clamped", "free"])
@pytest.mark.parametrize("penalty", ["none", "L1", "L2"])
def test_energies_and_gradients_are_those_of_the_definition_and_descend(
    layers: list[Layer], images: Tensor, penalty: str, label: str, output: str
) -> None:
    how = condition(output, label, penalty, 0.7)
    free = forward_pass(layers if output == "free" else layers[:-1], images)
    activities = [x + 0.1 * torch.randn_like(x) for x in free]
    terms, gradients, capsules = energies_and_gradients(layers, layers[0](images), activities, how, TARGET)
    assert 0.05 < capsules.norm(dim=-1).mean() < 1
    leaves = [x.clone().requires_grad_() for x in activities]
    energy = total(layers, images, leaves, how)
    expected = list(torch.autograd.grad(energy, leaves))
    if (output, penalty) == ("free", "L1"):  # what its proximal step adds to the gradient
        expected[-1] = expected[-1] - 0.7 * activities[-1] / activities[-1].norm(dim=-1, keepdim=True)
    torch.testing.assert_close(list(gradients), expected)
    torch.testing.assert_close(terms[1], (activities[1] - layers[1](activities[0])).square().flatten(1).sum(1) / 2)
    torch.testing.assert_close(terms.sum(), energy.detach())
    # In small steps the energy of no image ever rises.
    found, capsules, energies = infer(layers, images, how, TARGET, steps=range(40), rate=0.01)
    whole = energies.sum(1)
    assert energies.shape == (41, 5 + (output == "free"), 5)
    assert whole.diff(dim=0).max() < 1e-12
    if label == "clamped" or penalty != "none":
        assert (whole[-1] < whole[0] - 1e-4).all()
    else:
        assert whole.abs().max() < 1e-12, "the forward pass has no errors"
    torch.testing.assert_close(capsules, found[-1] if output == "free" else layers[-1](found[-1]))


@pytest.mark.parametrize(
    ("penalty", "lengths"),
    [("none", [0.85, 0.2, 0.05]), ("L1", [0.35, 0.0, 0.0]), ("L2", [1.7 / 3, 0.4 / 3, 0.1 / 3])],
)
def test_free_capsules_of_a_single_layer_end_where_they_do_by_hand(penalty: str, lengths: list[float]) -> None:
    """1/2 (r - p)^2 + 1/2 (t - r)^2 + penalty(r) for a capsule of length r predicted at p: its direction stays."""
    directions = torch.nn.functional.normalize(torch.randn(1, 3, 4, dtype=torch.float64), dim=-1)
    predicted = torch.tensor([0.7, 0.4, 0.1], dtype=torch.float64)[None, :, None] * directions
    layer = lambda images: predicted  # noqa: E731
    how, target = condition("free", "clamped", penalty), torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    image = torch.zeros(1, 1, dtype=torch.float64)
    _, found, _ = infer([layer], image, how, target, steps=range(200), rate=0.1)
    torch.testing.assert_close(found, torch.tensor(lengths, dtype=torch.float64)[None, :, None] * directions)


def test_predicted_capsules_of_one_number_end_where_they_do_by_hand() -> None:
    """1/2 (x - a)^2 + 1/2 (1 - x)^2 + w x for x > 0, which the last layer passes on: x = (1 + a - w) / 2."""
    layers = [lambda images: images, lambda x: x.unsqueeze(-1)]
    image = torch.tensor([[0.6]], dtype=torch.float64)
    how, target = condition("predicted", "clamped", "L1", 0.4), torch.ones(1, 1, dtype=torch.float64)
    _, capsules, energies = infer(layers, image, how, target, steps=range(200), rate=0.1)
    torch.testing.assert_close(capsules, torch.full((1, 1, 1), 0.6, dtype=torch.float64))
    torch.testing.assert_close(energies[-1, :, 0], torch.tensor([0.0, 0.08, 0.24], dtype=torch.float64))


def test_a_rate_too_high_is_named(layers: list[Layer], images: Tensor) -> None:
    with pytest.raises(UserError, match="diverged at rate 1e\\+06"):
        infer(layers, images, condition("free", "clamped", "none"), TARGET, steps=range(40), rate=1e6)
