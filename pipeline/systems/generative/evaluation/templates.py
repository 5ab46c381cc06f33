"""Which templates are affine copies of each other (document 000, section 5.4, Figure 6).

Templates are compared as drawn (opacity times intensity). For each pair, a search finds the affine map that makes the
second template most similar to the first. The map's linear part has singular values between 1 / `MOST_STRETCH` and
`MOST_STRETCH`. Reflections are allowed. Similarity is the correlation of pixels on a canvas of twice a template's side.
Ink in only one template lowers the correlation. Black pixels outside both templates would raise it and are left out.

The search starts from maps in closed form. S1 and S2 are the covariances of the ink's positions in the two templates.
If the second is a copy of the first, the map's linear part is S1^(1/2) Q S2^(-1/2), where Q is an unknown rotation or
reflection. Angles of Q are tried in equal steps. The best `REFINED` starts are refined by gradient ascent on all six
numbers of the map.
"""

import math

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.layers import poses
from pipeline.layers.rendering import pixel_centres, warp_templates
from pipeline.probes.features import batches
from pipeline.systems.generative.evaluation.consistency import BATCH, NO_INK, responsible_parts
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams

MOST_STRETCH = 2.0
"""Upper limit of the singular values of a map. The lower limit is 1 / `MOST_STRETCH`."""
CANVAS = 2
"""Side of the canvas on which two templates are compared, in units of a template's side."""
REFINED = 4
"""Number of starts that are refined for each pair of templates."""
STEP = 0.03
"""Adam's step size on the numbers of a map."""
LEAST_USE = 0.01
"""A part is in use if it draws at least this share of the ink. The template of an unused part is blank or noise."""
CONTROLS = 10
"""Number of random sets of strokes, cut from digits, in which copies are counted for comparison with the templates."""


@torch.no_grad()
def drawn(model: GenerativeModel, images: NDArray[np.uint8]) -> Tensor:
    """The templates `[n, h, h]`, on black, that draw at least `LEAST_USE` of the ink of uint8 `images [N, 1, S, S]`."""
    ink = torch.zeros(model.params.parts, dtype=torch.float64, device=model.device)
    for pixels in batches(images, model.device, BATCH):
        parts = responsible_parts(model, model.states(model.encode(pixels)))
        ink += torch.bincount(parts[parts != NO_INK], minlength=len(ink))
    return model.templates.prod(1)[ink / ink.sum().clamp_min(1) >= LEAST_USE]


def placed(pictures: Tensor, maps: Tensor | None = None) -> Tensor:
    """Draw each of `pictures [n, h, h]` on a canvas. If `maps [n, 2, 3]` are given, they move the pictures. The result
    `[n, 2, CANVAS h, CANVAS h]` has two channels: the picture, and its frame (1 inside, 0 outside).
    """
    frame = poses.identity(pictures) / CANVAS
    poses_of = frame.expand(len(pictures), 2, 3) if maps is None else poses.compose(frame, maps)
    layers = torch.stack([pictures, torch.ones_like(pictures)], dim=1).unsqueeze(1)  # one part of two channels
    return warp_templates(layers, poses.to_offset(poses_of).unsqueeze(1), CANVAS * pictures.shape[-1])[:, 0]


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """Correlations `[n]` of two results of `placed`, over pixels in at least one frame; 0 if a picture is constant."""
    (a, inside), (b, also) = (each.flatten(2).unbind(1) for each in (first, second))
    weight = torch.maximum(inside, also)
    weight = weight / weight.sum(1, keepdim=True)
    a, b = (each - (weight * each).sum(1, keepdim=True) for each in (a, b))
    scale = ((weight * a**2).sum(1) * (weight * b**2).sum(1)).clamp_min(1e-12).sqrt()
    return (weight * a * b).sum(1) / scale


def best_correlation(first: Tensor, second: Tensor, starts: int, steps: int) -> Tensor:
    """Largest correlations `[n]` of `first [n, h, h]` with affine maps of `second [n, h, h]`. The search tries `starts`
    rotations, each with and without a reflection. The best `REFINED` of them are refined by `steps` gradient steps.
    """
    begin = _starts(first, second, starts)  # (n, 2 starts, 2, 3)
    tried = begin.shape[1]
    target, moving = (each.repeat_interleave(tried, 0) for each in (placed(first), second))
    rough = correlation(target, placed(moving, begin.flatten(0, 1))).view(len(first), tried)
    kept = min(REFINED, tried)
    order = rough.topk(kept, dim=1).indices
    maps = begin.take_along_dim(order[..., None, None], dim=1).flatten(0, 1).requires_grad_()
    target, moving = (each.repeat_interleave(kept, 0) for each in (placed(first), second))

    optimiser = torch.optim.Adam([maps], lr=STEP)
    best = torch.full((len(maps),), -1.0, device=maps.device)
    for step in range(steps + 1):
        found = correlation(target, placed(moving, maps))
        best = torch.fmax(best, found.detach())  # ignores NaN
        if step < steps:
            optimiser.zero_grad()
            (-found.sum()).backward()
            optimiser.step()
            with torch.no_grad():
                maps[..., :2] = _within_stretch(maps[..., :2])
    return best.view(len(first), kept).amax(1)


def copies(pictures: Tensor, failures: FailureParams) -> dict[str, float]:
    """Shares of affine copies among P `pictures [P, h, h]`. "pairs" is the share of pairs whose `best_correlation` is
    at least `failures.threshold`. "copied" is the share of pictures in at least one such pair. Both are 0 if P < 2.
    """
    pairs = torch.triu_indices(len(pictures), len(pictures), 1, device=pictures.device)
    found = best_correlation(pictures[pairs[0]], pictures[pairs[1]], failures.starts, failures.steps)
    alike = found >= failures.threshold
    return {
        "pairs": int(alike.sum()) / max(len(alike), 1),
        "copied": len(pairs[:, alike].unique()) / max(len(pictures), 1),
    }


def template_copies(model: GenerativeModel, images: NDArray[np.uint8], failures: FailureParams) -> dict[str, float]:
    """Copies among a model's templates and, for comparison, among an equal number (at least 2) of strokes of digits.
    The images, uint8 `[N, 1, S, S]`, tell which templates are in use (`drawn`). Strokes are cut from the images.

    Returns:
        numbers by name: drawn, the number of templates in use; pairs and copied, from `copies`; faded_strokes_pairs and
        faded_strokes_copied, means over `CONTROLS` sets of faded `strokes`; faded_strokes_pairs_sd, the sd over sets.
    """
    pictures = drawn(model, images)
    size, scale = model.params.template_size, model.params.template_scale
    count = max(len(pictures), 2)  # at least one pair
    # Strokes are multiplied by the mean template (scaled to maximum 1), so that they fade at the edges as templates do.
    # Without fading, strokes that a window's edge cuts off would hardly match any other window.
    fading = pictures.mean(0) if len(pictures) else torch.ones(size, size).to(pictures)
    fading = fading / fading.max().clamp_min(1e-12)
    draws = [strokes(images, count, size, scale, failures.seed + draw).to(pictures) for draw in range(CONTROLS)]
    controls = pd.DataFrame([copies(windows * fading, failures) for windows in draws])
    return {
        "drawn": float(len(pictures)),
        **copies(pictures, failures),
        **{f"faded_strokes_{name}": float(mean) for name, mean in controls.mean().items()},
        "faded_strokes_pairs_sd": float(controls["pairs"].std()),
    }


def strokes(images: NDArray[np.uint8], count: int, size: int, scale: float, seed: int) -> Tensor:
    """Strokes of digits: windows `[count, size, size]` in [0, 1], cut from images of digits, uint8 `[N, 1, S, S]`. If
    `count` exceeds N, there are N windows. `scale` is the side of a window divided by the side of an image.

    Each window is centred on an ink pixel of a different image. Strokes of digits are also similar up to affine maps.
    So copies among templates are compared with copies among strokes.
    """
    random = np.random.default_rng(seed)
    chosen = images[random.permutation(len(images))[:count], 0]
    windows = []
    for image in chosen:
        ink = np.argwhere(image > 127)[:, ::-1]  # (x, y) of each pixel
        centre = (ink[random.integers(len(ink))] * 2 + 1) / len(image) - 1 if len(ink) else np.zeros(2)
        windows.append(np.concatenate([np.eye(2) * scale, centre[:, None]], axis=1))
    frames = torch.from_numpy(np.stack(windows)).float()
    pictures = torch.from_numpy(chosen)[:, None, None].float() / 255
    return warp_templates(pictures, poses.to_offset(poses.invert(frames)).unsqueeze(1), size)[:, 0, 0]


def _starts(first: Tensor, second: Tensor, count: int) -> Tensor:
    """Initial maps `[n, 2 count, 2, 3]`. They match the ink's centres and, within `MOST_STRETCH`, its covariances."""
    centre, spread = _moments(first)
    other_centre, other_spread = _moments(second)
    turns = poses.rotation(torch.arange(count, device=first.device) * (360 / count))[:, :, :2].to(first)
    mirror = torch.diag(torch.tensor([1.0, -1.0]).to(first))
    Q = torch.cat([turns, turns @ mirror])  # (2 count, 2, 2)
    linear = _within_stretch(_root(spread).unsqueeze(1) @ Q @ torch.linalg.inv(_root(other_spread)).unsqueeze(1))
    shift = centre[:, None, :, None] - linear @ other_centre[:, None, :, None]
    return torch.cat([linear, shift], dim=-1)


def _moments(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Centre `[n, 2]` and covariance `[n, 2, 2]` of the ink of pictures `[n, h, h]`, in coordinates from -1 to 1."""
    size = pictures.shape[-1]
    places = pixel_centres(pictures, size)[:, :2]  # (h h, 2)
    share = pictures.flatten(1) + 1e-9
    share = share / share.sum(1, keepdim=True)
    centre = share @ places
    away = places - centre.unsqueeze(1)
    spread = torch.einsum("np,npi,npj->nij", share, away, away)
    return centre, spread + torch.eye(2).to(spread) / size**2  # as if no stroke were thinner than a pixel


def _root(matrix: Tensor) -> Tensor:
    """The square root of symmetric positive matrices `[..., 2, 2]`, in closed form."""
    determinant = torch.linalg.det(matrix).clamp_min(1e-12).sqrt()[..., None, None]
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return (matrix + determinant * torch.eye(2).to(matrix)) / (trace + 2 * determinant).sqrt()


def _within_stretch(linear: Tensor) -> Tensor:
    """Linear maps `[..., 2, 2]` with singular values clamped as in `MOST_STRETCH`. Reflections stay reflections."""
    left, values, right = torch.linalg.svd(linear)
    limit = math.log(MOST_STRETCH)
    return left @ torch.diag_embed(values.clamp_min(1e-6).log().clamp(-limit, limit).exp()) @ right
