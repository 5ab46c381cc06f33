"""Planted scenes: parts whose parents and whose objects' poses are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.attention import von_mises_fisher
from pipeline.attention.top_down import Hierarchy


@dataclass(frozen=True)
class Scenes:
    """B scenes of m parts, each a random parse tree.

    Attributes:
        parts: poses `[B, m, d]`.
        cues: directions `[B, m, d]`.
        parents: object of each part, `[B, m]`; n where it is clutter.
        poses: of the objects, `[B, n, D]`; of those that are not there as well.
        present: `[B, n]`.
    """

    parts: Tensor
    cues: Tensor
    parents: Tensor
    poses: Tensor
    present: Tensor


def orthogonal_transforms(parts: int, objects: int, dimensions: int, random: np.random.Generator) -> Tensor:
    """W `[m, n, d, d]`: orthogonal matrices, drawn evenly: no part is likelier to fit by its length alone."""
    gaussian = random.normal(size=(parts, objects, dimensions, dimensions))
    q, r = np.linalg.qr(gaussian)
    return torch.from_numpy(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]).float()


def plant(
    hierarchy: Hierarchy, count: int, shown: int, clutter: float, sigma: float, random: np.random.Generator
) -> Scenes:
    """`count` scenes of `shown` objects each; a part belongs to any of them alike, or is clutter.

    Args:
        clutter: share of parts without a parent.
        sigma: sd of poses around their predictions.
    """
    m, n, _, D = hierarchy.W.shape
    poses = torch.from_numpy(random.normal(0.0, hierarchy.object_sd, (count, n, D))).float()
    order = np.argsort(random.random((count, n)), axis=1)[:, :shown]  # the objects shown
    parents = np.take_along_axis(order, random.integers(shown, size=(count, m)), axis=1)
    parents = np.where(random.random((count, m)) < clutter, n, parents)
    present = np.zeros((count, n), bool)
    np.put_along_axis(present, order, True, axis=1)
    U = hierarchy.components(poses).predictions.double().numpy()  # (B, m, n + 1, d)
    means = np.take_along_axis(U, parents[..., None, None], axis=2)[:, :, 0]
    sd = np.where(parents == n, hierarchy.clutter_sd, sigma)
    parts = means + sd[..., None] * random.normal(size=means.shape)
    cues = _cues(means, parents == n, float(hierarchy.kappa.max()), random)
    return Scenes(
        torch.from_numpy(parts).float(),
        torch.from_numpy(cues).float(),
        torch.from_numpy(parents),
        poses,
        torch.from_numpy(present),
    )


def _cues(
    means: NDArray[np.float64], clutter: NDArray[np.bool_], kappa: float, random: np.random.Generator
) -> NDArray[np.float64]:
    lengths = np.linalg.norm(means, axis=-1, keepdims=True)
    north = np.eye(means.shape[-1])[0]
    directions = np.where(lengths > 0, means / np.where(lengths > 0, lengths, 1.0), north)
    found = np.empty_like(means)
    for where, concentration in ((clutter, 0.0), (~clutter, kappa)):
        if where.any():
            found[where] = von_mises_fisher.sample(directions[where], concentration, random)
    return found


def votes(W: Tensor, parts: Tensor) -> Tensor:
    """What pose each object would have as the parent of each part `[B, m, d]`, by least squares: `[B, m, n, D]`."""
    return torch.einsum("ijab,...ib->...ija", torch.linalg.pinv(W), parts)
