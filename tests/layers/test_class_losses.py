"""Losses of class activations by hand."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline.layers.class_losses import cross_entropy, margin_loss, spread_loss

ACTIVATIONS = torch.tensor([[0.7, 0.2, 0.6], [0.1, 0.9, 0.0]])


def test_the_spread_loss_counts_every_rival_within_the_margin() -> None:
    """Document 004, equation 3."""
    found = spread_loss(ACTIVATIONS, torch.tensor([0, 1]), 0.6)
    assert found.tolist() == pytest.approx([(0.6 - 0.5) ** 2 + (0.6 - 0.1) ** 2, 0.0])
    wrong = spread_loss(ACTIVATIONS, torch.tensor([1, 2]), 0.2)
    assert wrong.tolist() == pytest.approx([(0.2 + 0.5) ** 2 + (0.2 + 0.4) ** 2, (0.2 + 0.1) ** 2 + (0.2 + 0.9) ** 2])


def test_the_margin_loss_counts_each_class_by_itself() -> None:
    found = margin_loss(ACTIVATIONS, torch.tensor([0, 1]), 0.9, 0.1, 0.5)
    assert found.tolist() == pytest.approx([0.2**2 + 0.5 * (0.1**2 + 0.5**2), 0.0])


def test_cross_entropy_is_of_shares() -> None:
    found = cross_entropy(ACTIVATIONS, torch.tensor([2, 1]))
    assert found.tolist() == pytest.approx([-math.log(0.6 / 1.5), -math.log(0.9 / 1.0)], rel=1e-5)
    # Nobody active: no share, a loss that is finite all the same.
    assert cross_entropy(torch.zeros(1, 3), torch.tensor([0])).isfinite().all()
