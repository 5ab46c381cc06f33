"""Variational inversion of the top-down model (left open in document 001): which objects generated the parts, and what
are the objects' poses?

Parents are marginalised; for each scene a Gaussian over object poses, with free means and sds, is fitted by maximising

    E_q[log p(parts, cues | z)] - KL(q(z) || p(z)),

for all scenes at the same time. The bound has many local maxima, because votes of wrong parts agree by chance. So each
scene has several starts, at poses that some of its parts vote for. In the first half of the steps, the parts' sds
shrink from larger values to those of the model. Then only the best few starts of each scene continue, and the best is
kept. Estimates of the bound are noisy, and the largest of several is biased upwards. So all starts are compared with
the same noise, drawn anew for each comparison, and the reported bound is estimated with new noise.

Shapes: B scenes, R starts of each; the others as in the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor

from pipeline.systems.attention.model.routing import Parse
from pipeline.systems.attention.model.scenes import votes as votes_of
from pipeline.systems.attention.model.top_down import Hierarchy

_SITES = ("objects", "cues", "parts")
"""Sites of the Pyro model whose log densities are in the bound."""


@dataclass(frozen=True)
class Settings:
    """Settings for maximising the bound.

    Attributes:
        steps: steps of Adam, half of them from every start; rate: its step size.
        starts: starts per scene; kept: number of them for the second half of the steps.
        samples: samples of the poses at each step; judging: samples for comparing starts.
        widest: initial factor on the parts' sds (sigma); it falls to 1 over the first half of the steps.
    """

    steps: int
    rate: float
    starts: int
    kept: int
    samples: int
    judging: int
    widest: float


@dataclass(frozen=True)
class Inverted:
    """The result of inversion.

    Attributes:
        parse: parents `[B, m, n]`, clutter `[B, m]` and poses `[B, n, D]`.
        sds: of the poses, `[B, n, D]`.
        bound: `[B]`, nats.
        kappa, sigma: learned or given values.
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
) -> Inverted:
    """Posterior of scenes with parts `[B, m, d]` and their cues (or none).

    Args:
        generator: on the device of the parts.
        learn: first learn kappa and sigma, one value of each for all scenes.
    """
    observed = (parts, cues)
    if learn:
        hierarchy = _learned(hierarchy, observed, settings, generator)
    q = _from_starts(hierarchy, observed, settings, settings.widest, generator)
    q = _best(hierarchy, q, observed, min(settings.kept, settings.starts), settings.judging, generator)
    q = _ascend(hierarchy, q, observed, settings, generator)
    with torch.no_grad():
        means, log_sds = _best(hierarchy, q, observed, 1, settings.judging, generator)
        bound = _bound(hierarchy, means, log_sds, observed, settings.judging, generator)[:, 0]
        z, sds = means[:, 0], log_sds[:, 0].exp()
        draws = z + sds * _noise(settings.judging, z, generator)
        parents = hierarchy.components(draws).parents(parts, cues).mean(0)
    parse = Parse(parents[..., :-1], z, parents[..., -1])
    return Inverted(parse, sds, bound, float(hierarchy.kappa.mean()), float(hierarchy.sigma.mean()))


def _learned(hierarchy: Hierarchy, observed: Observed, settings: Settings, generator: torch.Generator) -> Hierarchy:
    """The hierarchy with kappa and sigma that maximise the bound, starting from its own values.

    They are learned only from each scene's best start, after the first half of the steps: wrong starts would make them
    too wide.
    """
    q = _from_starts(hierarchy, observed, settings, 1.0, generator)  # the given scales are a guess, and wide enough
    q = _best(hierarchy, q, observed, 1, settings.judging, generator)
    log_scales = torch.stack([hierarchy.kappa.mean().log(), hierarchy.sigma.mean().log()])
    _ascend(hierarchy, q, observed, settings, generator, log_scales)
    kappa, sigma = log_scales.detach().exp()
    return replace(hierarchy, kappa=kappa.expand(1), sigma=sigma.expand(1))


def starts(hierarchy: Hierarchy, parts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Initial object poses, `[B, count, n, D]`: first, for each object, the vote that most other votes agree with, then
    random votes.
    """
    votes = votes_of(hierarchy.W, parts)  # (B, m, n, D)
    gaps = torch.cdist(votes.transpose(1, 2), votes.transpose(1, 2))  # (B, n, m, m)
    width = 2 * float(hierarchy.sigma.mean()) * math.sqrt(votes.shape[-1])
    agreed = (-0.5 * (gaps / width).square()).exp().sum(-1).argmax(-1)  # (B, n)
    B, m, n, D = votes.shape
    drawn = torch.randint(m, (B, count - 1, n), generator=generator, device=parts.device)
    chosen = torch.cat([agreed.unsqueeze(1), drawn], dim=1)  # (B, R, n)
    found = votes.transpose(1, 2).unsqueeze(1).expand(B, count, n, m, D)
    return found.take_along_dim(chosen[..., None, None], dim=3).squeeze(3).contiguous()


Gaussian = tuple[Tensor, Tensor]
"""Means and log sds of poses, `[B, R, n, D]` each."""
Observed = tuple[Tensor, Tensor | None]
"""Parts and cues, `[B, m, d]` each."""


def _from_starts(
    hierarchy: Hierarchy, observed: Observed, settings: Settings, widest: float, generator: torch.Generator
) -> Gaussian:
    """Half of the steps from every start, while sds shrink to the model's."""
    means = starts(hierarchy, observed[0], settings.starts, generator)
    q = (means, torch.full_like(means, math.log(0.1 * hierarchy.object_sd)))
    return _ascend(hierarchy, q, observed, settings, generator, widest=widest)


def _ascend(
    hierarchy: Hierarchy,
    q: Gaussian,
    observed: Observed,
    settings: Settings,
    generator: torch.Generator,
    log_scales: Tensor | None = None,
    widest: float = 1.0,
) -> Gaussian:
    """Half of the steps, with sds of parts that shrink from `widest` times the model's.

    Args:
        log_scales: logs of kappa and sigma, learned in place; None: they are the hierarchy's.
    """
    steps = max(settings.steps // 2, 1)
    means, log_sds = (each.clone().requires_grad_() for each in q)
    learned = [means, log_sds] + ([] if log_scales is None else [log_scales.requires_grad_()])
    optimiser = torch.optim.Adam(learned, lr=settings.rate)
    for step in range(steps):
        now = hierarchy
        if log_scales is not None:
            kappa, sigma = log_scales.exp()
            now = replace(hierarchy, kappa=kappa.expand(1), sigma=sigma.expand(1))
        now = replace(now, sigma=now.sigma * widest ** (1 - step / steps))
        optimiser.zero_grad()
        loss = -_bound(now, means, log_sds, observed, settings.samples, generator).sum()
        loss.backward()
        optimiser.step()
    return means.detach(), log_sds.detach()


@torch.no_grad()
def _best(
    hierarchy: Hierarchy, q: Gaussian, observed: Observed, count: int, samples: int, generator: torch.Generator
) -> Gaussian:
    """The starts of each scene with the highest bounds, best first."""
    means, log_sds = q
    best = _bound(hierarchy, means, log_sds, observed, samples, generator).topk(count, dim=1).indices[..., None, None]
    return means.take_along_dim(best, dim=1), log_sds.take_along_dim(best, dim=1)


def _noise(samples: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(samples, *like.shape, generator=generator, device=like.device, dtype=like.dtype)


def _bound(
    hierarchy: Hierarchy, means: Tensor, log_sds: Tensor, observed: Observed, samples: int, generator: torch.Generator
) -> Tensor:
    """The bound of every start `[B, R]`, in nats: the model's trace minus the guide's, averaged over samples.

    All starts of a scene use the same noise.
    """
    B, R = means.shape[:2]
    noise = _noise(samples, means[:, :1], generator)
    z = means + log_sds.exp() * noise  # (samples, B, R, n, D)
    count = samples * B * R

    def guide() -> None:
        with pyro.plate("scenes", count):
            density = (-0.5 * (noise.square() + math.log(2 * math.pi)) - log_sds).sum((-1, -2))
            pyro.sample("objects", dist.Delta(z.flatten(0, 2), log_density=density.flatten(), event_dim=2))

    def repeated(values: Tensor) -> Tensor:
        return values.unsqueeze(1).expand(samples, B, R, *values.shape[1:]).flatten(0, 2)

    again = [None if each is None else repeated(each) for each in observed]
    guided = poutine.trace(guide).get_trace()
    model = poutine.trace(poutine.replay(hierarchy.model, trace=guided)).get_trace(count, *again)
    for trace in (guided, model):
        trace.compute_log_prob()
    joint = sum(model.nodes[site]["log_prob"] for site in _SITES if site in model.nodes)
    return (joint - guided.nodes["objects"]["log_prob"]).view(samples, B, R).mean(0)
