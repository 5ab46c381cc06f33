"""Families of transformations (one-parameter groups of maps of the plane), their generators and their effect on images.

Coordinates are as in `pipeline.data.warps`: frames are [-1, 1] x [-1, 1], x to the right, y down. A matrix M maps the
position u in the input to M u in the output: out(M u) = in(u). If a model sees a crop, images are moved first and then
cropped, so that real content enters at the crop's edges. If a model sees the whole image, black enters at its edges.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.layers.images import centre_crop, warped_crops

ROTATION, SHIFT, SCALE, SHEAR = "rotation", "shift", "scale", "shear"
FAMILIES = (ROTATION, SHIFT, SCALE, SHEAR)
UNITS = {ROTATION: "degree", SHIFT: "pixel", SCALE: "percent", SHEAR: "percent"}
"""Units of derivatives: per degree, per pixel to the right, per scaling by e^0.01, and per shear by 0.01."""


@dataclass(frozen=True)
class Transformation:
    """One element g of a family.

    Attributes:
        family: one of `FAMILIES`.
        magnitude: degrees counter-clockwise for a rotation, pixels to the right for a shift, the factor for a scale,
            and the multiple of y added to x for a shear.
    """

    family: str
    magnitude: float

    @property
    def name(self) -> str:
        return f"{self.magnitude:g}"

    @property
    def inverse(self) -> "Transformation":
        """The inverse transformation."""
        return Transformation(self.family, 1 / self.magnitude if self.family == SCALE else -self.magnitude)

    def matrix(self, size: int) -> Tensor:
        """The matrix `[2, 3]`, double precision, in the frame of an image that is `size` pixels wide."""
        m = self.magnitude
        if self.family == ROTATION:
            return poses.rotation(torch.tensor(m, dtype=torch.float64))
        rows = {
            SHIFT: [[1.0, 0.0, 2 * m / size], [0.0, 1.0, 0.0]],
            SCALE: [[m, 0.0, 0.0], [0.0, m, 0.0]],
            SHEAR: [[1.0, m, 0.0], [0.0, 1.0, 0.0]],
        }
        return torch.tensor(rows[self.family], dtype=torch.float64)


def velocity(family: str, size: int) -> Tensor:
    """The generator `[2, 3]` of a family, per unit (`UNITS`): the derivative of its matrices at the identity."""
    rows = {
        ROTATION: [[0.0, math.pi / 180, 0.0], [-math.pi / 180, 0.0, 0.0]],
        SHIFT: [[0.0, 0.0, 2 / size], [0.0, 0.0, 0.0]],
        SCALE: [[0.01, 0.0, 0.0], [0.0, 0.01, 0.0]],
        SHEAR: [[0.0, 0.01, 0.0], [0.0, 0.0, 0.0]],
    }
    return torch.tensor(rows[family], dtype=torch.float64)


def moving(images: Tensor, velocity: Tensor, edge: str) -> Tensor:
    """The derivative of the moved images with respect to the move, at the identity.

    At each pixel, it is minus the scalar product of the pixel's velocity and the image's gradient. The gradient is
    computed by central differences, because bilinear interpolation is not differentiable at the centres of pixels. A
    central difference is the mean of the derivatives on both sides.

    Args:
        images: `[B, C, S, S]`.
        velocity: the generator `[2, 3]` of the move, in the frame of the images.
        edge: beyond the edges, images are black (`zeros`), or pixels at the edge are repeated (`border`).
    """
    size = images.shape[-1]
    padded = F.pad(images, (1, 1, 1, 1), mode="constant" if edge == "zeros" else "replicate")
    along_x = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) * (size / 4)  # per unit of the frame
    along_y = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) * (size / 4)
    ticks = (torch.arange(size, dtype=images.dtype, device=images.device) * 2 + 1) / size - 1
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    v = velocity.to(images)
    speed_x, speed_y = (v[i, 0] * x + v[i, 1] * y + v[i, 2] for i in (0, 1))
    return -(speed_x * along_x + speed_y * along_y)


@dataclass(frozen=True)
class View:
    """The part of an image that a model sees: the whole image, or the central square of `crop` x `crop` pixels.
    Images given to its methods are `[B, C, S, S]` in [0, 1].
    """

    crop: int | None

    @property
    def edge(self) -> str:
        """How images continue beyond their edges, as in `moving`."""
        return "zeros" if self.crop is None else "border"

    def seen(self, images: Tensor) -> Tensor:
        """The part of the images that the model sees. The images are not moved."""
        return images if self.crop is None else centre_crop(images, self.crop)

    def size(self, images: Tensor) -> int:
        """The side, in pixels, of the part of an image that the model sees."""
        return self.crop or images.shape[-1]

    def moved(self, images: Tensor, g: Transformation) -> Tensor:
        """Images moved by g, as the model sees them."""
        return self._resampled(images, g, self.size(images))

    def there_and_back(self, images: Tensor, g: Transformation) -> Tensor:
        """Images moved by g and then by its inverse. They differ from `seen(images)` only by resampling and edges."""
        return self._resampled(self._resampled(images, g, images.shape[-1]), g.inverse, self.size(images))

    def moving(self, images: Tensor, family: str) -> Tensor:
        """The derivative of `moved` with respect to a family's magnitude (per unit of `UNITS`), at the identity."""
        return self.seen(moving(images, velocity(family, images.shape[-1]), self.edge))

    def _resampled(self, images: Tensor, g: Transformation, size: int) -> Tensor:
        count, side = len(images), images.shape[-1]
        matrices = g.matrix(side).to(images).expand(count, 2, 3)
        if self.crop is None:
            return warps.warp(images, matrices)
        places = torch.full((count, 2), (side - size) // 2, device=images.device)
        in_pixels = torch.cat([matrices[..., :2], matrices[..., 2:] * (side / 2)], -1)
        return warped_crops(images, size, places, in_pixels)
