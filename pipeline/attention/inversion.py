"""Variational inversion of the top-down model (document 001 leaves it open): which objects made these parts, and where
are they?

Parents are summed out; a Gaussian with free means and sds for every scene's object poses is fitted by ascending

    E_q[log p(parts, cues | z)] - KL(q(z) || p(z)),

all scenes at once. The bound has many tops: wrong parts of a scene agree by chance. So each scene begins at several
places, poses that some of its parts vote for, and pose sds shrink to their own while it ascends; the best end is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor

from pipeline.attention.routing import Parse
from pipeline.attention.scenes import votes as votes_of
from pipeline.attention.top_down import Hierarchy


@dataclass(frozen=True)
class Settings:
    """How the bound is ascended.

    Attributes:
        steps: of Adam, from every start; rate: its step size.
        starts: of every scene.
        samples: of the poses at each step.
        widest: sds of poses begin at so many times their own, and reach that after half of the steps.
    """

    steps: int
    rate: float
    starts: int
    samples: int
    widest: float


@dataclass(frozen=True)
class Inverted:
    """What inversion found.

    Attributes:
        parse: parents `[B, m, n]` (what is missing to one is clutter's) and poses `[B, n, D]`.
        sds: of the poses, `[B, n, D]`.
        bound: `[B]`, nats.
        kappa, sigma: as learned, or as they were.
    """

    parse: Parse
    sds: Tensor
    bound: Tensor
    kappa: float
    sigma: float


def invert(
    hierarchy: Hierarchy,
    parts: Tensor,
    cues: Tensor | None,
    settings: Settings,
    generator: torch.Generator,
    *,
    learn: bool = False,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Inverted:
    """Posterior of scenes with parts `[B, m, d]` and their cues (or none).

    Args:
        learn: kappa and sigma too, one of each for all scenes, by the same bound.
    """
    B, R = len(parts), settings.starts
    means = starts(hierarchy, parts, R, generator).requires_grad_()  # (B * R, n, D)
    log_sds = torch.full_like(means, math.log(0.1 * hierarchy.object_sd)).requires_grad_()
    log_scales = torch.stack([hierarchy.kappa.mean().log(), hierarchy.sigma.mean().log()]).requires_grad_(learn)
    optimiser = torch.optim.Adam([means, log_sds], lr=settings.rate)
    if learn:
        optimiser.add_param_group({"params": [log_scales], "lr": 0.3 * settings.rate})
    several = parts.repeat_interleave(R, 0)
    several_cues = None if cues is None else cues.repeat_interleave(R, 0)
    for step in progress(range(settings.steps)):
        shrink = settings.widest ** max(0.0, 1 - 2 * step / settings.steps)
        now = _scaled(hierarchy, log_scales, shrink, learn)
        optimiser.zero_grad()
        loss = -_bound(now, means, log_sds, several, several_cues, settings.samples, generator).sum()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        now = _scaled(hierarchy, log_scales, 1.0, learn)
        bound = _bound(now, means, log_sds, several, several_cues, 8 * settings.samples, generator).view(B, R)
        best = bound.argmax(1) + R * torch.arange(B)
        z, sds = means[best].detach(), log_sds[best].detach().exp()
        draws = z + sds * torch.randn(8 * settings.samples, *z.shape, generator=generator)
        parents = now.components(draws).parents(parts, cues).mean(0)[..., :-1]
    return Inverted(Parse(parents, z), sds, bound.amax(1), float(now.kappa.mean()), float(now.sigma.mean()))


def starts(hierarchy: Hierarchy, parts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Object poses to begin at, `[B * count, n, D]`: for each object the vote that most other votes agree with, then
    votes of parts drawn at random.
    """
    votes = votes_of(hierarchy.W, parts)  # (B, m, n, D)
    gaps = torch.cdist(votes.transpose(1, 2), votes.transpose(1, 2))  # (B, n, m, m)
    width = 2 * float(hierarchy.sigma.mean()) * math.sqrt(votes.shape[-1])
    agreed = (-0.5 * (gaps / width).square()).exp().sum(-1).argmax(-1)  # (B, n)
    B, m, n, D = votes.shape
    drawn = torch.randint(m, (B, count - 1, n), generator=generator)
    chosen = torch.cat([agreed.unsqueeze(1), drawn], dim=1)  # (B, R, n)
    found = votes.transpose(1, 2).unsqueeze(1).expand(B, count, n, m, D)
    return found.take_along_dim(chosen[..., None, None], dim=3).squeeze(3).flatten(0, 1).contiguous()


def _scaled(hierarchy: Hierarchy, log_scales: Tensor, shrink: float, learn: bool) -> Hierarchy:
    if not learn:
        return replace(hierarchy, sigma=hierarchy.sigma * shrink)
    kappa, sigma = log_scales.exp()
    return replace(hierarchy, kappa=kappa.expand(1), sigma=shrink * sigma.expand(1))


def _bound(
    hierarchy: Hierarchy,
    means: Tensor,
    log_sds: Tensor,
    parts: Tensor,
    cues: Tensor | None,
    samples: int,
    generator: torch.Generator,
) -> Tensor:
    """The bound of every scene `[B]`, in nats: the difference of the traces of model and guide, a mean over samples."""
    B = len(parts)
    noise = torch.randn(samples, *means.shape, generator=generator)

    def guide() -> None:
        with pyro.plate("scenes", samples * B):
            z = (means + log_sds.exp() * noise).flatten(0, 1)
            density = dist.Normal(means, log_sds.exp()).log_prob(z.view_as(noise)).sum((-1, -2)).flatten()
            pyro.sample("objects", dist.Delta(z, log_density=density, event_dim=2))

    again = [None if each is None else each.repeat(samples, 1, 1) for each in (parts, cues)]
    guided = poutine.trace(guide).get_trace()
    model = poutine.trace(poutine.replay(hierarchy.model, trace=guided)).get_trace(samples * B, *again)
    for trace in (guided, model):
        trace.compute_log_prob()
    terms = [node["log_prob"] for node in model.nodes.values() if node["type"] == "sample" and "log_prob" in node]
    total = sum(term for term in terms if term.shape == (samples * B,)) - guided.nodes["objects"]["log_prob"]
    return total.view(samples, B).mean(0)
