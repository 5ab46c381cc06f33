"""Layers f of a model, and their actions rho(g). In theory, f(g x) = rho(g) f(x) for an image x and an affine map g.

Shapes: B or N images, n capsules with k values each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers import poses
from pipeline.probes.equivariance.transformations import moving

Map = Callable[[Tensor], Tensor]
"""A function from a layer's values `[B, n, k]` to values of the same shape."""

VALIDATION_SHARE = 0.25
"""`linear_map` chooses its penalty on the last images of `Pairs`. This is their share of all images."""


@dataclass(frozen=True)
class Pairs:
    """A layer's values before and after a move, to which `FromTheLeft` and `linear_map` are fitted.

    Attributes:
        before: values `[N, n, k]` of the images to fit to.
        after: values `[N, n, k]` of the moved images or, for a generator, derivatives with respect to the move.
        weights: `[N, n]`, the weight of each capsule.
    """

    before: Tensor
    after: Tensor
    weights: Tensor


class Action(Protocol):
    """rho: how a layer's values change when the image is moved."""

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map | None:
        """rho(g), given the matrix `[2, 3]` of g in the frame of the model's input. None if theory gives no rho(g)."""

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map | None:
        """The derivative of rho(g) at the identity, in the direction `velocity [2, 3]`. None if theory gives none."""


@dataclass(frozen=True)
class Layer:
    """A layer of a model, evaluated on a batch of images.

    Attributes:
        numbers: the capsules' values, `[B, n, k]`.
        weights: presences of the capsules, `[B, n]`. They weight errors, because poses of absent capsules mean nothing.
        action: the action according to theory. None if theory gives none, or if values should not change.
        fitted: whether a linear map of all n * k values is fitted as well.
    """

    numbers: Tensor
    weights: Tensor
    action: Action | None
    fitted: bool = True


Read = Callable[[Tensor], dict[str, Layer]]
"""A function from the images that a model sees (`[B, C, s, s]` in [0, 1], any float type) to its layers by name."""


def plain(values: Tensor, action: Action | None, fitted: bool = True) -> Layer:
    """A layer of values `[B, n, k]` with equal weights."""
    return Layer(values, torch.ones_like(values[..., 0]), action, fitted)


class Poses:
    """Action on affine poses I + A with k = 6 values A (`pipeline.layers.poses`). g multiplies I + A from the left."""

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """A becomes g (I + A) - I."""
        return lambda A: poses.to_offset(poses.compose(matrix.to(A), poses.to_matrix(A)))

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """A changes by V (I + A), where V is the velocity."""
        return lambda A: poses.compose(velocity.to(A), poses.to_matrix(A)).flatten(-2)


@dataclass(frozen=True)
class FromTheLeft:
    """Action on square pose matrices (k = side^2 values, stored by rows): multiplication by a matrix T from the left.

    A vote is a pose times a matrix on the right. So a T that multiplies the poses of all primary capsules from the left
    also multiplies the poses in all higher layers (document 003, equation 5; document 004, section 3). Theory does not
    determine T. One T for all capsules is fitted to `Pairs` by least squares.
    """

    side: int

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """Multiplication by the matrix T that fits `pairs` best."""
        square = (self.side, self.side)
        before, after = (each.unflatten(-1, square).double() for each in (pairs.before, pairs.after))
        weighted = pairs.weights[..., None, None].double() * before
        normal = torch.einsum("bnij,bnkj->ik", weighted, before)
        T = torch.linalg.lstsq(normal, torch.einsum("bnij,bnkj->ik", weighted, after)).solution.mT
        return lambda values: (T.to(values) @ values.unflatten(-1, square)).flatten(-2)

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """Multiplication by the derivative of T. It is fitted as T in `finite`, but to derivatives in `pairs.after`."""
        return self.finite(velocity, pairs)


@dataclass(frozen=True)
class FeatureMaps:
    """Action on n feature maps of k = side^2 pixels, which cover the same frame as the image, and move like the image.

    Attributes:
        side: height and width of a feature map in pixels.
        edge: `zeros` or `border`, as in `transformations.moving`.
    """

    side: int
    edge: str

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """Resample each feature map in the same way as the image."""

        def move(values: Tensor) -> Tensor:
            pictures = values.unflatten(-1, (self.side, self.side))
            sampling = poses.invert(matrix.to(values)).expand(len(values), 2, 3)
            grid = F.affine_grid(sampling, list(pictures.shape), align_corners=False)
            return F.grid_sample(pictures, grid, padding_mode=self.edge, align_corners=False).flatten(-2)

        return move

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """The derivative of each feature map, as `transformations.moving` computes it for the image."""
        return lambda values: moving(values.unflatten(-1, (self.side, self.side)), velocity, self.edge).flatten(-2)


def linear_map(pairs: Pairs, penalties: Sequence[float]) -> Map:
    """Fit a linear map from a layer's values to its values for moved images (Lenc and Vedaldi 2015). The map is a ridge
    regression. It predicts a capsule's values after the move from the n * k values of all capsules before the move.

    The regression that predicts a capsule weights images by the capsule's `Pairs.weights`. Values are centred, so the
    map is affine and its intercept is not penalised. To choose the penalty, maps are fitted without the last quarter of
    the images. The penalty with the smallest error on this quarter, summed over capsules, is used to fit all images.

    Args:
        penalties: penalties to choose from, in units of the largest eigenvalue of the values' covariance.
    """
    count = len(pairs.before)
    before, after, weights = pairs.before.flatten(1).double(), pairs.after.double(), pairs.weights.double()
    first = count - round(VALIDATION_SHARE * count)
    part = _regressions(before[:first], after[:first], weights[:first])

    def error(penalty: float) -> float:
        missed = (part(penalty, before[first:]) - after[first:]).square().sum(-1)
        return float((weights[first:] * missed).sum())

    best = min(penalties, key=error)
    whole = _regressions(before, after, weights)
    return lambda values: whole(best, values.flatten(1).double()).to(values)


def _regressions(before: Tensor, after: Tensor, weights: Tensor) -> Callable[[float, Tensor], Tensor]:
    """Weighted ridge regressions of `after [N, n, k]` on `before [N, d]`, where d = n * k. Returns a function that
    predicts `[M, n, k]` from a penalty and values `[M, d]` of M images. The eigenvectors of the weighted covariance
    of `before` serve all penalties and, if all capsules of each image have the same weight, all capsules.
    """
    alike = bool((weights == weights[:, :1]).all())
    groups = [slice(None)] if alike else [slice(i, i + 1) for i in range(weights.shape[1])]
    tiny = torch.finfo(weights.dtype).tiny
    solved = []
    for group in groups:
        w = weights[:, group][:, :1]
        w = w / w.sum().clamp_min(tiny)
        y = after[:, group].flatten(1)
        mean, mean_after = (w * before).sum(0), (w * y).sum(0)
        x = before - mean
        eigenvalues, vectors = torch.linalg.eigh((w * x).T @ x)
        moments = vectors.T @ ((w * x).T @ (y - mean_after))
        solved.append((mean, mean_after, eigenvalues.clamp_min(0), vectors, moments))

    def predict(penalty: float, values: Tensor) -> Tensor:
        found = []
        for mean, mean_after, eigenvalues, vectors, moments in solved:
            shrunk = eigenvalues + penalty * eigenvalues[-1].clamp_min(tiny)
            found.append(mean_after + (values - mean) @ (vectors @ (moments / shrunk.unsqueeze(-1))))
        return torch.cat(found, 1).unflatten(-1, after.shape[1:])

    return predict
