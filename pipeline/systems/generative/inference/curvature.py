"""Gauss-Newton steps on the analytic bound: gradient, curvature, and the damped linear system of each image.

The negative bound is approximately half a sum of squared residuals. A pixel residual is the pixel minus its mean,
divided by sigma, the pixels' sd. A pose residual is part j's pose minus object i's vote (I + A_i) M_ij, divided by the
vote's sd c_ij. The square of a pose residual is weighted by the part's presence and by the posterior probability that
object i is the part's parent (the routing). The main terms of the Gauss-Newton curvature H are

    pixels    J'J / sigma^2, where J [S S, 7 P] is the derivative of the mean image with respect to the parts' states
    votes     the second derivative with routing and presences fixed; exact, as residuals are linear in A_i and A_j
    log odds  the second derivative of the negative log densities of relaxed presences, at noise 0

In H, poses of different objects are coupled only through the parts. Votes do not couple the two rows of an object's 2x3
pose, and both rows have the same 3x3 curvature. Eliminating object poses leaves a 7 P x 7 P system (Schur complement).

Shapes: N images of S S pixels, P parts, O objects. A part or object has a state of 7 numbers: log odds, then pose.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers import poses
from pipeline.layers.poses import POSE_SIZE
from pipeline.layers.rendering import pixel_centres, sample_templates, sampling_points
from pipeline.systems.generative.inference.analytic_bound import (
    STATE,
    hierarchy_bound,
    picture_moments,
    pixel_bound,
    presence_moments,
    unpack,
)
from pipeline.systems.generative.model.distributions import Capsules
from pipeline.systems.generative.model.generative_model import GenerativeModel

_CHUNK = 64
"""Images processed at a time. Their Jacobians (22 MB for 16 parts on 28 x 28 pixels) should fit in the CPU's cache."""


class Linearised(NamedTuple):
    """Value, gradient and Gauss-Newton curvature of each image's negative analytic bound at the image's state."""

    value: Tensor  # (N,)
    gradient: Tensor  # (N, 7 P + 7 O)
    parts: Tensor  # (N, 7 P, 7 P), curvature of the parts
    coupling: Tensor  # (N, 3 P, 3 O), mixed curvature of part and object poses for one row; both rows have the same
    objects: Tensor  # (N, O, 3, 3), curvature of each object's pose for one row; both rows have the same
    presences: Tensor  # (N, O), curvature of the objects' log odds

    def diagonal(self) -> Tensor:
        """The curvature's diagonal, `[N, 7 P + 7 O]`."""
        objects = objects_diagonal(self.objects, self.presences)
        return torch.cat([self.parts.diagonal(dim1=-2, dim2=-1), objects], dim=1)


def linearise(model: GenerativeModel, images: Tensor, states: Tensor) -> Linearised:
    """`Linearised` for the negative analytic bound of images `[N, 1, S, S]` in [0, 1] at states `[N, 7 P + 7 O]`."""
    chunks = zip(images.split(_CHUNK), states.split(_CHUNK), strict=True)
    return Linearised(*map(torch.cat, zip(*(_linearise(model, *chunk) for chunk in chunks), strict=True)))


def _linearise(model: GenerativeModel, images: Tensor, states: Tensor) -> Linearised:
    P = model.params.parts
    x = states.detach().requires_grad_()
    with torch.enable_grad():
        found = unpack(x, P)
        t, square = presence_moments(found.part_logits, model.temperature)
        drawings = _Drawings(model, found.part_poses)
        colour, alpha = drawings.colour.requires_grad_(), drawings.alpha.requires_grad_()
        first, second = picture_moments(colour, alpha, t, square)
        explained, routing = hierarchy_bound(model, found, t)
        bound = pixel_bound(model, images, first, second) + explained
        # A mean presence depends only on its own log odds. So the gradient of the sum has the derivative of each.
        (slope,) = torch.autograd.grad(t.sum(), x, retain_graph=True)
        gradient, to_colour, to_alpha = torch.autograd.grad(-bound.sum(), (x, colour, alpha))
    with torch.no_grad():
        to_inverse = (drawings.slopes(to_colour, to_alpha) @ drawings.pixels).flatten(2)  # (N, P, 6)
        gradient.unflatten(1, (-1, STATE))[:, :P, 1:] += (to_inverse.unsqueeze(-2) @ drawings.inverse_slope).squeeze(-2)
        t = t.detach()
        jacobian = _jacobian(drawings, t, slope.unflatten(1, (-1, STATE))[:, :P, 0])
        parts = _pixel_curvature(drawings, jacobian, model.params.pixel_sd)
        weight = _precision(model, routing, t)
        pose = weight.sum(-1) + (1 - t) / model.params.inactive_pose_sd**2
        odds = (model.gamma - found.part_logits.unsqueeze(-1)).sigmoid()
        logit = (routing * 2 * odds * (1 - odds)).sum(-1)
        own = torch.cat([logit.unsqueeze(-1), pose.unsqueeze(-1).expand(*pose.shape, POSE_SIZE)], dim=-1)
        parts.diagonal(dim1=1, dim2=2).add_(own.flatten(1))
        M = poses.homogeneous(model.M)
        coupling = -torch.einsum("npo,oplk->npkol", weight[..., 1:], M).flatten(3, 4).flatten(1, 2)
        objects, presences = object_curvature(model, found, routing, t)
        return Linearised(-bound.detach(), gradient, parts, coupling, objects, presences)


class _Drawings:
    """All templates drawn at poses `A [N, P, 6]`, and their derivatives with respect to the pixels' `sampling_points`.

    Attributes:
        colour, alpha: intensities and opacities, each `[N, P, S, S]`.
        colour_slope, alpha_slope: derivatives of the two with respect to the sampling points, each `[N, P, S, S, 2]`.
        pixels: homogeneous coordinates of pixels, `[S S, 3]`. A part's inverse pose maps them to its sampling points.
        inverse_slope: derivative of each part's inverse pose with respect to its pose, `[N, P, 6, 6]`.
    """

    def __init__(self, model: GenerativeModel, A: Tensor) -> None:
        A, size = A.detach(), model.image_size
        points = sampling_points(A, size).requires_grad_()
        with torch.enable_grad():
            colour, alpha = sample_templates(model.templates.detach(), points).unbind(2)
            (self.colour_slope,) = torch.autograd.grad(colour.sum(), points, retain_graph=True)
            (self.alpha_slope,) = torch.autograd.grad(alpha.sum(), points)
        self.colour, self.alpha, self.pixels = colour.detach(), alpha.detach(), pixel_centres(A, size)
        inverse = torch.func.jacrev(lambda A: poses.invert(poses.to_matrix(A)).flatten(-2))
        self.inverse_slope = torch.func.vmap(inverse)(A.flatten(0, 1)).unflatten(0, A.shape[:2])

    def slopes(self, to_colour: Tensor, to_alpha: Tensor) -> Tensor:
        """Derivatives of a function with respect to the sampling points, `[N, P, 2, S S]`, by the chain rule. The
        arguments are the function's derivatives with respect to `colour` and `alpha`, each `[N, P, S, S]`.
        """
        to_points = torch.mul(self.colour_slope, to_colour.unsqueeze(-1))
        to_points.addcmul_(self.alpha_slope, to_alpha.unsqueeze(-1))
        return to_points.flatten(2, 3).transpose(-1, -2).contiguous()


def _jacobian(drawings: _Drawings, t: Tensor, slope: Tensor) -> Tensor:
    """The derivative of the mean image with respect to the parts' log odds and inverse poses, `[N, P, 7, S S]`.

    Args:
        t, slope: mean presences, and their derivatives with respect to the log odds; each `[N, P]`.
    """
    colour, alpha, t = drawings.colour, drawings.alpha, t[..., None, None]
    opacity = alpha * t
    below, above = [torch.zeros_like(colour[:, 0])], [torch.ones_like(colour[:, 0])]
    for C, a in zip(colour.unbind(1)[:-1], opacity.unbind(1)[:-1], strict=True):
        below.append(torch.lerp(below[-1], C, a))
    for a in reversed(opacity.unbind(1)[1:]):
        above.append(above[-1] * (1 - a))  # product of 1 - opacity over the layers above a layer
    through = torch.stack(above[::-1], dim=1)
    by_opacity = (colour - torch.stack(below, dim=1)).mul_(through)
    jacobian = colour.new_empty(*colour.shape[:2], STATE, colour[0, 0].numel())
    torch.mul(by_opacity.flatten(2), (alpha * slope[..., None, None]).flatten(2), out=jacobian[:, :, 0])
    by_point = drawings.slopes(opacity.mul_(through), by_opacity.mul_(t))
    for row in range(2):
        torch.mul(by_point[:, :, row, None], drawings.pixels.T, out=jacobian[:, :, 1 + 3 * row : 4 + 3 * row])
    return jacobian


def _pixel_curvature(drawings: _Drawings, jacobian: Tensor, sd: float) -> Tensor:
    """J'J / sigma^2 for the parts' log odds and poses, `[N, 7 P, 7 P]`, from the result of `_jacobian`."""
    flat = jacobian.flatten(1, 2)
    curvature = (flat @ flat.transpose(1, 2)).div_(sd**2)
    # The chain rule converts the curvature from inverse poses to poses. `turn` has each part's 7x7 derivative of
    # (log odds, inverse pose) with respect to (log odds, pose). The 7x7 block B of parts i, j becomes turn_i' B turn_j.
    turn = F.pad(drawings.inverse_slope, (1, 0, 1, 0))
    turn[..., 0, 0] = 1
    each = curvature.unflatten(1, (-1, STATE)).transpose(-1, -2)  # (N, P, 7 P, 7): the last index is converted next
    left = (each @ turn).transpose(-1, -2).flatten(1, 2)  # (N, 7 P, 7 P)
    return (left.transpose(1, 2).unflatten(1, (-1, STATE)).transpose(-1, -2) @ turn).transpose(-1, -2).flatten(1, 2)


def object_curvature(model: GenerativeModel, found: Capsules, routing: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """The curvature of the objects' poses, `[N, O, 3, 3]` (the same for both rows), and of their log odds, `[N, O]`.
    `routing [N, P, 1 + O]` is from `hierarchy_bound`. `t [N, P]` has the parts' mean presences.
    """
    M = poses.homogeneous(model.M)
    outer = (M @ M.transpose(-1, -2)).transpose(0, 1)  # (P, O, 3, 3)
    eye = torch.eye(3, dtype=M.dtype, device=M.device)
    objects = torch.einsum("npo,polm->nolm", _precision(model, routing, t)[..., 1:], outer) + eye

    # The curvature of log odds has two terms: from the prior, and from the object's effect on the choice of parents.
    prior = (torch.logit(torch.tensor(model.params.object_presence)) - found.object_logits).sigmoid()
    pi = routing[..., 1:]
    on = found.object_logits.div(model.temperature).sigmoid()
    presences = 2 * prior * (1 - prior) + (pi * (1 - pi)).sum(1) * ((1 - on) / model.temperature) ** 2
    return objects, presences


def objects_diagonal(objects: Tensor, presences: Tensor) -> Tensor:
    """The diagonal `[N, 7 O]` of the curvature of the objects' states, from `object_curvature`."""
    rows = objects.diagonal(dim1=-2, dim2=-1)  # (N, O, 3)
    return torch.cat([presences.unsqueeze(-1), rows, rows], dim=-1).flatten(1)


def _precision(model: GenerativeModel, routing: Tensor, t: Tensor) -> Tensor:
    """The precision of each vote, weighted by routing and presence, `[N, P, 1 + O]`."""
    return routing * t.unsqueeze(-1) / model.c**2


def solve(linearised: Linearised, damping: Tensor, floor: float) -> Tensor:
    """The damped Gauss-Newton step -(H + D)^-1 gradient of each image, `[N, 7 P + 7 O]`. It is zero if the image's
    system is numerically not positive definite.

    Args:
        damping: `[N]`. D is a diagonal matrix: the diagonal of H times `damping`, plus `floor`.
    """
    O = linearised.presences.shape[1]
    P = linearised.parts.shape[1] // STATE
    gradient = linearised.gradient.unflatten(1, (-1, STATE))
    by_parts, by_objects = gradient[:, :P], gradient[:, P:]
    scale = 1 + damping

    # Eliminate the objects' poses by a 3x3 system per row of a pose. A system for the parts remains (Schur complement).
    blocks = linearised.objects.clone()
    diagonal = blocks.diagonal(dim1=-2, dim2=-1)
    diagonal.mul_(scale[:, None, None]).add_(floor)
    inverse = torch.linalg.inv(blocks)  # (N, O, 3, 3)
    coupling = linearised.coupling  # (N, 3 P, 3 O)
    weighted = (coupling.unflatten(2, (O, 3)).unsqueeze(-2) @ inverse.unsqueeze(1)).flatten(2)  # (N, 3 P, 3 O)
    left = (weighted @ coupling.transpose(1, 2)).unflatten(1, (P, 3)).unflatten(3, (P, 3))  # (N, P, 3, P, 3)
    system = linearised.parts.clone()
    diagonal = system.diagonal(dim1=1, dim2=2)
    diagonal.mul_(scale.unsqueeze(-1)).add_(floor)
    each = system.unflatten(1, (P, STATE)).unflatten(3, (P, STATE))
    right = -by_parts
    rows = [slice(1, 4), slice(4, 7)]
    for row in rows:
        each[:, :, row, :, row] -= left
        wanted = by_objects[:, :, row].flatten(1).unsqueeze(-1)  # (N, 3 O, 1)
        right[:, :, row] += (weighted @ wanted).squeeze(-1).unflatten(1, (P, 3))
    factor, failed = torch.linalg.cholesky_ex(system)
    step = torch.cholesky_solve(right.flatten(1).unsqueeze(-1), factor).squeeze(-1).unflatten(1, (P, STATE))

    back = torch.empty_like(by_objects)
    back[..., 0] = -by_objects[..., 0] / (linearised.presences * scale.unsqueeze(-1) + floor)
    for row in rows:
        moved = coupling.transpose(1, 2) @ step[:, :, row].flatten(1).unsqueeze(-1)  # (N, 3 O, 1)
        rest = -(by_objects[:, :, row].unsqueeze(-1) + moved.unflatten(1, (O, 3)))
        back[:, :, row] = (inverse @ rest).squeeze(-1)
    whole = torch.cat([step, back], dim=1).flatten(1)
    return torch.where((failed == 0).unsqueeze(-1), whole, torch.zeros_like(whole))
