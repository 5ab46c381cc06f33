"""Functions with known equivariance. Their errors check the measurement, and give a scale for a network's errors.

- `pixels`: f(x) = x. The prediction for a moved image resamples f(x) as the image is resampled. So the error is
  zero, except for content that enters at the edges of a crop.
- `moments`: centroid and second moments of an image's content. An affine map of the plane changes them in a way that
  is known exactly. Their error comes from the pixel grid and from edges.
- `quarter turns`: a network of two group convolutions over turns by 90 degrees (Cohen and Welling 2016), with random
  weights. Only these turns are exact on a pixel grid. So the network's error at 90 and 180 degrees is only rounding.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.probes.equivariance.actions import FeatureMaps, Map, Pairs, Read, plain

FILTERS, KERNEL = 4, 3


def controls(edge: str) -> dict[str, Read]:
    """The controls by name, as functions from images to a layer. `edge` is as in `transformations.moving`."""
    return {
        "pixels": lambda images: {"pixels": plain(images.flatten(2), FeatureMaps(images.shape[-1], edge), False)},
        "moments": lambda images: {"moments": plain(moments(images), MomentAction(), False)},
        "quarter turns": lambda images: {"turns": plain(quarter_turn_network(images), QuarterTurnAction(), False)},
    }


def moments(images: Tensor) -> Tensor:
    """Centroid (x, y) and second moments (xx, xy, yy), `[B, 1, 5]`, in the frame [-1, 1] x [-1, 1] of the image.

    The content of an image is its pixels minus the background. The background is the median of the pixels on the edge,
    channel by channel. Negative content is kept, so that moments are ratios of linear functions of the content.
    """
    size = images.shape[-1]
    rim = torch.ones(size, size, dtype=torch.bool, device=images.device)
    rim[1:-1, 1:-1] = False
    background = images[..., rim].median(-1).values[..., None, None]
    content = (images - background).sum(1)  # (B, S, S)
    ticks = (torch.arange(size, dtype=images.dtype, device=images.device) * 2 + 1) / size - 1
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    powers = torch.stack([x, y, x * x, x * y, y * y])  # (5, S, S)
    mass = content.sum((-1, -2))
    mass = torch.where(mass == 0, torch.ones_like(mass), mass)  # a uniform image: all moments are 0
    return (torch.einsum("bij,mij->bm", content, powers) / mass.unsqueeze(-1)).unsqueeze(1)


class MomentAction:
    """The matrix S `[3, 3]` of second moments of (x, y, 1) becomes G S G^T, where G is the map as a 3x3 matrix."""

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """S becomes G S G^T."""
        G = F.pad(matrix, (0, 0, 0, 1))
        G[2, 2] = 1
        return lambda values: _numbers(G.to(values) @ _symmetric(values) @ G.to(values).mT)

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """S changes by V S + S V^T, where V is the velocity."""
        V = F.pad(velocity, (0, 0, 0, 1))

        def change(values: Tensor) -> Tensor:
            moved = V.to(values) @ _symmetric(values)
            return _numbers(moved + moved.mT)

        return change


def _symmetric(values: Tensor) -> Tensor:
    x, y, xx, xy, yy = values.unbind(-1)
    rows = [xx, xy, x, xy, yy, y, x, y, torch.ones_like(x)]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def _numbers(S: Tensor) -> Tensor:
    return torch.stack([S[..., 0, 2], S[..., 1, 2], S[..., 0, 0], S[..., 0, 1], S[..., 1, 1]], -1)


def quarter_turn_network(images: Tensor) -> Tensor:
    """Features `[B, FILTERS, 4]` of images `[B, C, S, S]`, where S is even. The last axis has the four quarter turns.

    The network averages over channels and blocks of 2x2 pixels, convolves twice over positions and turns (with ReLU),
    and then averages over positions. The weights are random, but always the same.
    """
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(FILTERS, 1, KERNEL, KERNEL, generator=generator, dtype=torch.float64) / KERNEL
    second = torch.randn(FILTERS, FILTERS, 4, KERNEL, KERNEL, generator=generator, dtype=torch.float64)
    first, second = first.to(images), (second / (KERNEL * math.sqrt(4 * FILTERS))).to(images)
    x = F.avg_pool2d(images.mean(1, keepdim=True), 2)
    lifted = torch.cat([F.conv2d(x, first.rot90(r, (-2, -1))) for r in range(4)], 1).relu()  # (B, 4 FILTERS, H, H)
    by_turn = []
    for r in range(4):
        # The filter for r quarter turns: it is rotated in the plane, and shifted by r along the axis of turns.
        turned = second.roll(r, 2).rot90(r, (-2, -1)).transpose(1, 2).flatten(1, 2)  # (FILTERS, 4 FILTERS, k, k)
        by_turn.append(F.conv2d(lifted, turned).relu().mean((-1, -2)))
    return torch.stack(by_turn, -1)


class QuarterTurnAction:
    """Turns of the image by 90, 180 or 270 degrees shift values along the axis of turns. Other maps have no action."""

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map | None:
        """The cyclic shift for a turn by 90, 180 or 270 degrees, else None."""
        turns = round(math.degrees(math.atan2(float(matrix[0, 1]), float(matrix[0, 0]))) / 90)
        exact = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=matrix.dtype).matrix_power(turns % 4)
        if turns % 4 == 0 or not torch.allclose(matrix[:, :2], exact, atol=1e-9) or bool(matrix[:, 2].any()):
            return None
        return lambda values: values.roll(turns, -1)

    def generator(self, velocity: Tensor, pairs: Pairs) -> None:
        """None, because quarter turns cannot be arbitrarily small."""
