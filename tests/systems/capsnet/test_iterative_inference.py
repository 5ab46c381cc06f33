"""The study of iterative inference on a small network: its rows, and that conditions differ as they must."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from routing_loop import capsnet
from small import INFER, squares

from pipeline.layers.dynamic_routing import unweighted_sum
from pipeline.probes.sparsity import hoyer
from pipeline.results.outcome import Outcome
from pipeline.systems.capsnet.experiments.iterative_inference import descent, sparsity_of_inference
from pipeline.systems.capsnet.studies.infer import InferParams

CPU = torch.device("cpu")


def measured(seeds: Sequence[int], **changes: Any) -> Outcome:
    """Of a network by seed."""
    settings = InferParams.model_validate({**INFER, "run": "capsnet", **changes})
    return sparsity_of_inference([capsnet(seed, iterations=0) for seed in seeds], squares(), settings, CPU, "infer")


@pytest.fixture(scope="module")
def found() -> Outcome:
    return measured([0, 1], steps=120)


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
    np.testing.assert_allclose(np.linalg.norm(arrays["capsules_start"], axis=-1), lengths[:6], rtol=1e-4)
    assert arrays["energies_free-clamped-none"].shape == (121, 4 + 2)
    assert arrays["energies_predicted-clamped-L1-1"].shape == (121, 3 + 2)
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


def test_free_capsules_that_l1_kills_are_silent_not_even() -> None:
    condition = {"output": "free", "label": "free", "penalty": "L1", "weight": 5.0}
    table = measured([0], steps=500, conditions=[condition]).table
    row = table[(table["condition"] == "free-free-L1-5") & (table["layer"] == "class")].iloc[0]
    assert (row["silent"], row["right"]) == (1, 0)
    assert math.isnan(row["hoyer"])
