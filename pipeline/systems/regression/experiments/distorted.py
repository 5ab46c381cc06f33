"""Errors of large capsules after training on many distorted copies of images (document 002, section 3.4).

The document takes its images from infinite MNIST (Loosli et al. 2007). Infinite MNIST moves pixels along tangents of
rotations, scalings, thickenings and elastic fields. Here each image is distorted by a small random affine map and by a
smooth random field of displacements, without thickening. The field is a bicubic interpolation of random displacements
at the points of a coarse grid. The strengths of all distortions are our choice.
"""

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from pipeline.data.datasets import PARTS
from pipeline.layers.poses import invert
from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.fits import Inputs, fit_architecture
from pipeline.systems.regression.settings import DistortedStudy

CHUNK = 4096
POINTS = 5
"""Number of points of the coarse grid on each axis."""


def distort(
    images: Tensor,
    generator: torch.Generator,
    strength: float = 1.0,
    *,
    angle: float = 10.0,
    stretch: float = 0.1,
    shear: float = 0.1,
    shift: float = 1.0,
    elastic: float = 0.7,
) -> Tensor:
    """Distort each of the float images `[B, 1, S, S]` at random. Pixels from beyond the edges are 0.

    Args:
        generator: generator on the CPU, so that all devices give the same images.
        strength: factor on all amounts below. All but `elastic` are the limits of uniform distributions around 0.
        angle: largest rotation, in degrees.
        stretch: largest change of the scale of each axis, as a share of the scale.
        shear: largest shift of x, as a share of y.
        shift: largest shift on each axis, in pixels.
        elastic: sd of the normally distributed displacements at the points of the coarse grid, in pixels.
    """
    B, _, size, _ = images.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    angles = math.radians(strength * angle) * uniform(B)
    scales = 1 + strength * stretch * uniform(B, 2)
    shears, shifts = strength * shear * uniform(B), strength * shift * 2 / size * uniform(B, 2)
    rotation = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], -1).unflatten(-1, (2, 2))
    slant = torch.eye(2).repeat(B, 1, 1)
    slant[:, 0, 1] = shears
    matrices = torch.cat([rotation @ slant @ torch.diag_embed(scales), shifts.unsqueeze(-1)], dim=-1)
    coarse = torch.randn(B, 2, POINTS, POINTS, generator=generator) * (strength * elastic * 2 / size)
    device = images.device
    grid = functional.affine_grid(invert(matrices.to(device)), [B, 1, size, size], align_corners=False)
    field = functional.interpolate(coarse.to(device), size=(size, size), mode="bicubic", align_corners=True)
    return functional.grid_sample(images, grid + field.permute(0, 2, 3, 1), align_corners=False)


def enlarged(inputs: Inputs, examples: int, strength: float, seed: int) -> Inputs:
    """Add distorted copies of the training images to the training part, until it has `examples` examples.

    The numbers of copies of any two images differ by at most one. Copies are projected onto the singular vectors of
    the original images. The validation and test parts are unchanged.
    """
    count = len(inputs.X["train"])
    which = torch.arange(max(examples, count)) % count
    X, y = (each["train"][which.to(each["train"].device)] for each in (inputs.X, inputs.y))
    generator = torch.Generator().manual_seed(seed)
    basis = inputs.basis.float()
    for start in tqdm(range(count, len(X), CHUNK), desc="distorted", unit="batch"):
        rows = which[start : start + CHUNK]
        pictures = torch.from_numpy(inputs.images["train"][rows.numpy()]).to(X.device).float() / 255
        X[start : start + len(rows)] = distort(pictures, generator, strength).flatten(1) @ basis
    depends = {**inputs.depends, "distorted": [examples, strength, seed]}
    return replace(inputs, X={**inputs.X, "train": X}, y={**inputs.y, "train": y}, depends=depends)


def run(inputs: Inputs, study: DistortedStudy) -> Outcome:
    """Train one architecture with distorted copies of images. The table has the errors, one row per strength.

    At strength 0 there are no copies. Training errors include errors on the copies. The outcome's numbers are the
    errors at strength 0, and at the strength above 0 with the lowest validation error.
    """
    architecture = build_architecture(study.decision, study.size, inputs.classes)
    rows: list[dict[str, Any]] = []
    for strength in (0.0, *study.strengths):
        data = enlarged(inputs, study.examples, strength, study.seed) if strength else inputs
        row = {"data": "distorted" if strength else "plain", "strength": strength, "examples": len(data.X["train"])}
        rows.append(row | fit_architecture(data, architecture, study.schedule)[1])
    best = min(rows[1:], key=lambda row: float(row["validation"]))
    numbers = {
        row["data"]: {part: one(row[part]) for part in PARTS} | {key: row[key] for key in ("examples", "strength")}
        for row in (rows[0], best)
    }
    headline = tuple(f"{data}.{part}" for data in numbers for part in ("train", "test"))
    return Outcome("distorted", pd.DataFrame(rows), numbers, headline)
