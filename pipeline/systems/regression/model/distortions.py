"""An unlimited supply of distorted digits: a deterministic stand-in for infinite MNIST (Loosli et al. 2007).

Each image is distorted by a small random affine map and a smooth random field (random displacements on a coarse grid,
with cubic interpolation). Infinite MNIST moves pixels along tangents of rotations, scalings, thickenings and elastic
fields. It is a stand-in because here there is no thickening, and the strengths are our choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from pipeline.data.warps import invert


@dataclass(frozen=True)
class Strength:
    """How strongly images are distorted.

    Attributes:
        angle: degrees, rotation uniform in [-angle, +angle].
        stretch: scales on each axis are uniform in [1 - stretch, 1 + stretch].
        shear: x moves by at most this share of y.
        shift: pixels, uniform on each axis.
        elastic: pixels, sd of the field at the points of its grid.
        points: points of the field's grid per side.
    """

    angle: float = 10.0
    stretch: float = 0.1
    shear: float = 0.1
    shift: float = 1.0
    elastic: float = 0.7
    points: int = 5

    def times(self, factor: float) -> Strength:
        """The same grid, with all other amounts multiplied by a factor."""
        moved = {name: factor * getattr(self, name) for name in ("angle", "stretch", "shear", "shift", "elastic")}
        return replace(self, **moved)


def distort(images: Tensor, generator: torch.Generator, strength: Strength = Strength()) -> Tensor:
    """Float images `[B, 1, S, S]`, each with its own random distortion; the outside is black.

    Args:
        generator: on the CPU, so that all devices give the same images.
    """
    B, _, size, _ = images.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    angle = math.radians(strength.angle) * uniform(B)
    scale = 1 + strength.stretch * uniform(B, 2)
    shear, shift = strength.shear * uniform(B), strength.shift * 2 / size * uniform(B, 2)
    cosine, sine = angle.cos(), angle.sin()
    rotation = torch.stack([torch.stack([cosine, sine], -1), torch.stack([-sine, cosine], -1)], -2)
    slant = torch.eye(2).repeat(B, 1, 1)
    slant[:, 0, 1] = shear
    matrices = torch.cat([rotation @ slant @ torch.diag_embed(scale), shift.unsqueeze(-1)], dim=-1)
    coarse = torch.randn(B, 2, strength.points, strength.points, generator=generator) * (strength.elastic * 2 / size)
    device = images.device
    grid = functional.affine_grid(invert(matrices.to(device)), [B, 1, size, size], align_corners=False)
    field = functional.interpolate(coarse.to(device), size=(size, size), mode="bicubic", align_corners=True)
    return functional.grid_sample(images, grid + field.permute(0, 2, 3, 1), align_corners=False)
