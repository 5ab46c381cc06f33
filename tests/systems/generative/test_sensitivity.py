"""What is trained for a sensitivity study, and what is compared."""

from __future__ import annotations

import pytest
import torch
from small import EVALUATE

from pipeline.data.datasets import Dataset
from pipeline.probes.generalisation import rotation_probes
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.studies.sensitivity import ordered_values, outcome

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("values", "ordered"),
    [([0.1, 0.4], [0.1, 0.4, 0.2]), ([0.2, 0.4, 0.1, 0.4], [0.4, 0.1, 0.2]), ([], [0.2])],
)
def test_each_value_is_trained_once_and_the_runs_own_last(values: list[float], ordered: list[float]) -> None:
    assert ordered_values(values, 0.2) == ordered


def test_probes_on_clean_images_and_the_pixel_error_are_compared_and_no_bound(
    capsules: GenerativeModel, dataset: Dataset
) -> None:
    found = outcome(capsules, dataset, EVALUATE, CPU).set_index("metric")["measured"]
    probes = rotation_probes(capsules, dataset, 0.0, EVALUATE, CPU).set_index("features")["accuracy"]
    assert found.index.tolist() == ["t0", "t0_A0", "pixel_error"]
    assert found["t0"] == probes["t0"]
    assert found["t0_A0"] == probes["t0_A0"]
    assert found["pixel_error"] > 0
