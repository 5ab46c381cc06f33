"""The study of iterative inference on a small network: its rows, and that conditions differ as they must."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import INFER, SIZE, SMALL_CAPSNET

from pipeline.data.datasets import Dataset
from pipeline.models.capsnet import CapsNet
from pipeline.outcome import Outcome
from pipeline.params import CapsNetModelParams, InferParams
from pipeline.studies.iterative_inference import sparsity_of_inference
from pipeline.studies.sparsity import hoyer

CPU = torch.device("cpu")


def network(seed: int) -> CapsNet:
    """Not trained, with capsules long enough to matter and a middle layer."""
    torch.manual_seed(seed)
    net = CapsNet(CapsNetModelParams.model_validate({**SMALL_CAPSNET, "middle": 4, "iterations": 0}), SIZE)
    assert net.middle is not None
    with torch.no_grad():
        net.second.weight *= 5
        net.middle.transformations *= 8
        net.last.transformations *= 8
    return net.eval()


@pytest.fixture
def found(dataset: Dataset) -> Outcome:
    settings = InferParams.model_validate({**INFER, "run": "capsnet", "steps": 120})
    return sparsity_of_inference([network(0), network(1)], dataset, settings, CPU, lambda steps: steps)


def test_rows(found: Outcome, dataset: Dataset) -> None:
    table, arrays = found.table, found.arrays
    assert len(table) == 2 * (1 + 2 * 3) * 2
    assert (table["falls"] == 1).all()
    of_class = table[(table["label"] == "free") & (table["penalty"] == "L2") & (table["layer"] == "class")]
    told = found.numbers["condition"]["free"]["L2"]["class"]["energy"]
    assert told["mean"] == pytest.approx(of_class["energy"].mean())
    assert told["n"] == 2
    forward = table[(table["penalty"] == "forward") & (table["replica"] == 0) & (table["layer"] == "class")].iloc[0]
    net, (images, labels) = network(0), dataset.part("test")
    lengths = net.encode(torch.from_numpy(images).float() / 255).norm(dim=-1).detach().numpy()
    assert forward["hoyer"] == pytest.approx(float(hoyer(lengths).mean()), rel=1e-5)
    assert forward["right"] == pytest.approx((lengths.argmax(1) == labels).mean())
    assert forward["length_right"] == pytest.approx(lengths[np.arange(len(labels)), labels].mean(), rel=1e-5)
    np.testing.assert_allclose(np.linalg.norm(arrays["capsules_none_forward"], axis=-1), lengths[:6], rtol=1e-4)
    assert arrays["energies_clamped_none"].shape == (121, 4 + 2)


def test_conditions_do_what_they_must(found: Outcome) -> None:
    table = found.table.set_index(["replica", "layer", "label", "penalty"]).sort_index()
    for replica in (0, 1):
        of_class = table.loc[replica, "class"]
        clamped, free = of_class.loc["clamped"], of_class.loc["free"]
        assert (clamped["right"] == 1).all(), "the label pulls its own capsule"
        assert clamped.loc["L1", "length_others"] < clamped.loc["none", "length_others"]
        assert clamped.loc["none", "length_right"] > free.loc["none", "length_right"]
        assert free.loc["none", "energy"] == pytest.approx(0, abs=1e-9), "nothing pulls"
        assert free.loc["L2", "length_right"] < free.loc["none", "length_right"]
