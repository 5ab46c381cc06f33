"""The bound of a free-form posterior (fit to each image separately) with the noise of its presences integrated out.

If poses are deltas (points), only the relaxed presences t = sigmoid(y) are random: y = (a + l) / tau, with log odds a,
temperature tau and independent standard logistic noise l. Second-order methods need a smooth bound without sampling
noise. So each term of the bound is replaced by its mean over l, or by a lower bound on this mean:

- Pixels: exact. The image is linear in the presence t_j of each part j, and presences are independent. So the means of
  each pixel and of its square are computed from E t_j and E t_j^2, layer by layer (`picture_moments`).
- Parts: a lower bound. Given the objects, log p(y_j, A_j | objects) is a logsumexp over the possible parents. The mean
  of each term over the part's own noise is known. By Jensen's inequality, the mean of the logsumexp is at least the
  logsumexp of these means. The latter is averaged over stratified samples of objects' noise, the same for all images.
- Entropies, and priors of objects: exact, because E softplus(c + l) = c / (1 - exp(-c)) for any number c.

Apart from the error of the stratified samples, the sum of these terms is at most the evidence lower bound (document
000, appendix A). For trained models, the sum is up to 0.25 nats below sampled estimates of the evidence lower bound.

Shapes: N images, P parts, O objects. The states of images, `[N, 7 P + 7 O]`, have one row per image. A row has the log
odds of presence (1 number) and the pose (6 numbers) of each part, then of each object.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from pipeline.layers.poses import POSE_SIZE
from pipeline.layers.rendering import warp_templates
from pipeline.systems.generative.model.distributions import Capsules, join
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.hierarchy import gaussian_log_density, log_parent_probabilities

STATE = 1 + POSE_SIZE
"""Numbers in the state of one capsule."""

OBJECT_SAMPLES = 16
"""Number of stratified samples of the objects' presences."""

_REACH = 20.0
"""Integrals over standard logistic noise l go from -`_REACH` to `_REACH`. |l| is larger with probability 4e-9."""


def pack(capsules: Capsules) -> Tensor:
    """Convert a posterior to states `[N, 7 P + 7 O]`."""
    parts = join(capsules.part_logits, capsules.part_poses)
    return torch.cat([parts.flatten(1), join(capsules.object_logits, capsules.object_poses).flatten(1)], dim=1)


def unpack(states: Tensor, parts: int) -> Capsules:
    """The inverse of `pack`."""
    each = states.unflatten(1, (-1, STATE))
    y, A = each[..., 0], each[..., 1:]
    return Capsules(y[:, :parts], A[:, :parts], y[:, parts:], A[:, parts:])


def presence_moments(a: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """E t and E t^2 of relaxed presences t = sigmoid((a + l) / tau), each with the shape of the log odds `a`.

    The integrals over the noise l are computed by the trapezoidal rule. The error is below 3e-6, because the integrand
    is smooth and decays fast (Trefethen and Weideman 2014).
    """
    # The error depends on the distance of the integrand's poles from the real line, which is pi tau for t and pi for
    # the density of the noise. So a temperature tau below 1 needs a finer grid.
    step = min(1.0, temperature)
    count = 2 * math.ceil(_REACH / step) + 1
    noise = torch.linspace(-_REACH, _REACH, count, dtype=a.dtype, device=a.device)
    weight = noise.sigmoid() * (-noise).sigmoid()
    weight = weight / weight.sum()
    t = ((a.unsqueeze(-1) + noise) / temperature).sigmoid()
    return t @ weight, (t * t) @ weight


def expected_softplus(c: Tensor) -> Tensor:
    """Elementwise E softplus(c + l) = c / (1 - exp(-c)), where l is standard logistic."""
    near = c.abs() < 1e-2
    safe = torch.where(near, torch.ones_like(c), c)
    return torch.where(near, 1 + c / 2 + c * c / 12, safe / -torch.expm1(-safe))


def expected_presence_log_prob(a: Tensor, logits: Tensor | float, temperature: float) -> Tensor:
    """Mean over l of the log density, in nats, of y = (a + l) / tau under relaxed presences with log odds `logits`."""
    shift = logits - a  # logits - tau y = shift - l, where -l has the same distribution as l, with mean 0
    return shift - 2 * expected_softplus(shift) + math.log(temperature)


def picture_moments(colour: Tensor, alpha: Tensor, mean: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """Means of pixels and of squared pixels, each `[N, S, S]`, if layers are composited by the operator "over".

    Args:
        colour, alpha: the layers' intensities, and their opacities at presence t = 1, each `[N, P, S, S]`.
        mean, square: E t and E t^2 of the layers' presences, each `[N, P]`.
    """
    first, second = torch.zeros_like(colour[:, 0]), torch.zeros_like(colour[:, 0])
    for C, opacity, m, q in zip(colour.unbind(1), alpha.unbind(1), mean.unbind(1), square.unbind(1), strict=True):
        s, s2 = opacity * m[:, None, None], opacity * opacity * q[:, None, None]  # moments of t * alpha
        second = second + C * (2 * (s - s2) * first + C * s2) + (s2 - 2 * s) * second
        first = torch.lerp(first, C, s)
    return first, second


def pixel_bound(model: GenerativeModel, images: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """E log p(x | parts) `[N]`, in nats, of images `[N, 1, S, S]`, from the rendered image's `picture_moments`."""
    x, sd = images[:, 0], model.params.pixel_sd
    squared = (x * x - 2 * x * first + second).sum((-1, -2))
    return -0.5 * squared / sd**2 - x[0].numel() * math.log(sd * math.sqrt(2 * math.pi))


@lru_cache(maxsize=4)
def stratified_noise(samples: int, count: int) -> Tensor:
    """Stratified samples of standard logistic noise, `[samples, count]`. Each of the `count` presences has the means of
    strata of equal probability, in random order. With medians instead of means, small presences, which are rare, would
    have too little weight, and the bound would be too high.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.stack([torch.randperm(samples, generator=generator) for _ in range(count)], dim=1)
    u = torch.linspace(0, 1, samples + 1, dtype=torch.float64)
    # The quantile function of the noise is logit(u), whose integral is u log u + (1 - u) log(1 - u).
    means = samples * (torch.special.xlogy(u, u) + torch.special.xlogy(1 - u, 1 - u)).diff()
    return means[order]


def hierarchy_bound(model: GenerativeModel, found: Capsules, t: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of all terms of the bound except the pixels' term. Only these terms depend on the objects.

    Args:
        t: means of the parts' presences, `[N, P]`.

    Returns:
        the sum, `[N]`, in nats; and the routing `[N, P, 1 + O]`: the mean over samples of the posterior over parents.
    """
    params, temperature = model.params, model.temperature
    noise = stratified_noise(OBJECT_SAMPLES, params.objects).to(found.object_logits)
    y0 = (found.object_logits + noise.unsqueeze(1)) / temperature  # (samples, N, O)
    log_pi = log_parent_probabilities(y0, model.log_affinity)  # (samples, N, P, 1 + O)
    layer = model.parts_given_objects(found.object_logits, found.object_poses)
    A = found.part_poses
    present = expected_presence_log_prob(found.part_logits.unsqueeze(-1), model.gamma, temperature)
    active = gaussian_log_density((A.unsqueeze(-2) - layer.votes).square().sum(-1), layer.c)
    width = torch.full_like(t, params.inactive_pose_sd)
    inactive = gaussian_log_density((A - layer.inactive_pose).square().sum(-1), width)
    joint = log_pi + (present + t.unsqueeze(-1) * active + ((1 - t) * inactive).unsqueeze(-1))
    parts = joint.logsumexp(-1).mean(0)  # (N, P)

    odds = math.log(params.object_presence / (1 - params.object_presence))
    prior = expected_presence_log_prob(found.object_logits, odds, temperature).sum(-1)
    prior = prior - 0.5 * (found.object_poses.flatten(1).square() + math.log(2 * math.pi)).sum(-1)
    # Entropy of all presences; delta poses have no entropy.
    entropy = (params.parts + params.objects) * (2 - math.log(temperature))
    return parts.sum(-1) + (prior + entropy), joint.detach().softmax(-1).mean(0)


def analytic_bound(model: GenerativeModel, images: Tensor, states: Tensor) -> Tensor:
    """The bound `[N]`, in nats, of images `[N, 1, S, S]` in [0, 1] at states `[N, 7 P + 7 O]` from `pack`."""
    found = unpack(states, model.params.parts)
    mean, square = presence_moments(found.part_logits, model.temperature)
    colour, alpha = warp_templates(model.templates, found.part_poses, model.image_size).unbind(2)
    pixels = pixel_bound(model, images, *picture_moments(colour, alpha, mean, square))
    return pixels + hierarchy_bound(model, found, mean)[0]
