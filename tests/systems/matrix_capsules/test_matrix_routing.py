"""Routing iterations of matrix capsules: those of the network itself, and of the procedure as printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small import SMALL_MATRIX_CAPSULES

from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules, RoutedCapsules
from pipeline.systems.matrix_capsules.model.procedure_1 import procedure_1
from pipeline.systems.matrix_capsules.routing import follow, iterations_of
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams


def small_capsules(**changes: Any) -> MatrixCapsules:
    torch.manual_seed(0)
    params = MatrixCapsulesModelParams.model_validate({**SMALL_MATRIX_CAPSULES, "iterations": 3, **changes})
    model = MatrixCapsules(params, 10)
    if params.batch_norm:
        model.end_epoch(torch.rand(32, 1, 10, 10), 16)
    return model.eval()


BAYES = {"activation": "bayes", "batch_norm": True, "saving": None}


@pytest.mark.parametrize("changes", [{}, {"activation": "mixing"}, BAYES], ids=["mdl", "mixing", "Bayes, batch norm"])
def test_the_last_iteration_is_what_the_network_gives(changes: dict[str, Any]) -> None:
    model, images = small_capsules(**changes), torch.rand(5, 1, 10, 10)
    found = follow(model, 3, images)
    assert iterations_of(model) == 3
    torch.testing.assert_close(found.activations[-1], model.scores(images).detach(), rtol=1e-4, atol=1e-5)
    assert found.shares.shape == (3, 5, 3, 9, 2)
    assert found.spreads.shape == (3, 5, 3)
    torch.testing.assert_close(found.parts, model.capsules(images)[-2][1].detach())


def test_every_iteration_is_the_one_of_the_plain_procedure() -> None:
    """Activations after each number of iterations, by Procedure 1 as printed."""
    model, images = small_capsules().double(), torch.rand(2, 1, 10, 10, dtype=torch.float64)
    layer = model.routed[-1]
    assert isinstance(layer, RoutedCapsules)
    below = tuple(each.detach() for each in model.capsules(images)[-2])
    inputs = [*below, layer.full_transformations().detach(), *(each.detach() for each in layer.betas())]
    found = follow(model, 4, images)
    for t in range(4):
        plain = procedure_1(*inputs, replace(layer.routing(), iterations=t + 1))[1]
        torch.testing.assert_close(found.activations[t], plain[:, 0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.shares.sum(2), 1, rtol=1e-6)
