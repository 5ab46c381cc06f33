"""Generated scenes, with known parents of parts and known poses of objects."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.systems.attention.model import von_mises_fisher
from pipeline.systems.attention.model.top_down import Hierarchy


@dataclass(frozen=True)
class Scenes:
    """B scenes of m parts, each a random parse tree.

    Attributes:
        parts: poses `[B, m, d]`.
        cues: directions `[B, m, d]`.
        parents: index of the object of each part, `[B, m]`. Clutter has index n.
        poses: poses of all objects, present or absent, `[B, n, D]`.
        present: mask of the objects in the scene, `[B, n]`.
    """

    parts: Tensor
    cues: Tensor
    parents: Tensor
    poses: Tensor
    present: Tensor


def orthogonal_transforms(parts: int, objects: int, dimensions: int, random: np.random.Generator) -> Tensor:
    """W `[m, n, d, d]`: uniformly random orthogonal matrices, so that a part's length does not reveal its parent."""
    gaussian = random.normal(size=(parts, objects, dimensions, dimensions))
    q, r = np.linalg.qr(gaussian)
    return torch.from_numpy(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]).float()


def plant(hierarchy: Hierarchy, count: int, shown: int, random: np.random.Generator) -> Scenes:
    """`count` scenes of `shown` objects each. A part is clutter, or its parent is uniform over the shown objects.

    Given the objects that are present, the scenes are samples of the hierarchy's model.
    """
    W = hierarchy.W
    m, n, _, D = W.shape
    poses = torch.from_numpy(random.normal(0.0, hierarchy.object_sd, (count, n, D)))
    order = np.argsort(random.random((count, n)), axis=1)[:, :shown]  # the objects shown
    parents = np.take_along_axis(order, random.integers(shown, size=(count, m)), axis=1)
    parents = np.where(random.random((count, m)) < hierarchy.clutter, n, parents)
    present = np.zeros((count, n), bool)
    np.put_along_axis(present, order, True, axis=1)
    components = hierarchy.components(poses.to(W))
    U, directions = (
        np.take_along_axis(each.double().numpy(), parents[..., None, None], axis=2)[:, :, 0]  # of the parts' parents
        for each in (components.predictions, components.directions)
    )
    kappa, sigma = (each.double().numpy()[parents] for each in (components.kappa, components.sigma))
    parts = torch.from_numpy(U + sigma[..., None] * random.normal(size=U.shape)).to(W)
    drawn = von_mises_fisher.sample(directions.reshape(count * m, -1), kappa.ravel(), random)
    cues = torch.from_numpy(drawn).to(W).view_as(parts)
    return Scenes(parts, cues, torch.from_numpy(parents), poses.to(W), torch.from_numpy(present))


def votes(W: Tensor, parts: Tensor) -> Tensor:
    """The least-squares pose `[B, m, n, D]` of each object if it were the parent of each of `parts [B, m, d]`."""
    return torch.einsum("ijab,...ib->...ija", torch.linalg.pinv(W), parts)
