"""Inversion of the top-down model, which document 001 leaves open: it infers parents of parts and poses of objects.

The posterior of the object poses z of a scene is approximated by a Gaussian q, with the means and sds that maximise

    E_q[log p(parts, cues | z)] - KL(q(z) || p(z))

This is a lower bound on log p(parts, cues), with parents summed out. It has many local maxima, because votes for an
object can agree by chance, even if they come from parts of other objects. So each scene has several starts, at poses
that some of its parts vote for. In the first half of the steps, the parts' sds shrink from larger values to the sds of
the model. Only the best few starts of each scene continue in the second half. At the end the best start is kept. The
bound is estimated with random noise, the same for all starts of a scene. The largest of several estimates is biased
upwards, so the bound of the best start is estimated again with new noise. `top_down` explains cues, kappa and sigma.

Shapes: B scenes, R starts of each scene, n objects with poses of D numbers, m parts with poses of d numbers.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.systems.attention.model.routing import Parse
from pipeline.systems.attention.model.top_down import Hierarchy
from pipeline.systems.attention.settings import ParsingStudy

Gaussian = tuple[Tensor, Tensor]
"""Means and log sds of poses, `[B, R, n, D]` each."""


@dataclass(frozen=True)
class Inverted:
    """The result of inversion.

    Attributes:
        parse: posterior of the parents `[B, m, n + 1]`, with clutter last, and posterior means of poses `[B, n, D]`.
        sds: posterior sds of the poses, `[B, n, D]`.
        bound: the bound of each scene, `[B]`, in nats.
        hierarchy: the model, with the given or the learned kappa and sigma.
    """

    parse: Parse
    sds: Tensor
    bound: Tensor
    hierarchy: Hierarchy


def invert(
    hierarchy: Hierarchy, parts: Tensor, cues: Tensor | None, settings: ParsingStudy, *, learn: bool = False
) -> Inverted:
    """Approximate the posterior of scenes from parts `[B, m, d]` and, unless they are None, cues `[B, m, d]`.

    Args:
        learn: whether kappa and sigma (one value of each for all scenes) are learned before the main search. Only the
            best start of each scene is used for this, because worse starts would make the densities too wide.
    """
    search = _Search(parts, cues, settings, torch.Generator().manual_seed(settings.seed))
    if learn:
        q = search.best(hierarchy, search.from_starts(hierarchy, 1.0), 1)  # 1.0: sigma keeps its value
        log_scales = torch.stack([hierarchy.kappa.mean().log(), hierarchy.sigma.mean().log()]).requires_grad_()
        search.ascend(hierarchy, q, log_scales)
        hierarchy = _with_scales(hierarchy, log_scales.detach())
    q = search.best(hierarchy, search.from_starts(hierarchy, settings.widest), settings.kept)
    q = search.ascend(hierarchy, q)
    with torch.no_grad():
        q = search.best(hierarchy, q, 1)
        bound = search.bound(hierarchy, q, settings.judging)[:, 0]
        z, sds = q[0][:, 0], q[1][:, 0].exp()
        parents = hierarchy.components(z + sds * search.noise(settings.judging, z)).parents(parts, cues).mean(0)
    return Inverted(Parse(parents, z), sds, bound, hierarchy)


def starts(hierarchy: Hierarchy, parts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Object poses of `count` starts, `[B, count, n, D]`. In the first start, each object has the vote that agrees
    best with the other parts' votes for this object. In the others, each object has a random part's vote.
    """
    votes = hierarchy.votes(parts)
    B, m, n, D = votes.shape
    gaps = torch.cdist(votes.transpose(1, 2), votes.transpose(1, 2))  # (B, n, m, m)
    width = 2 * float(hierarchy.sigma.mean()) * math.sqrt(D)
    agreed = (-0.5 * (gaps / width).square()).exp().sum(-1).argmax(-1)  # (B, n)
    drawn = torch.randint(m, (B, count - 1, n), generator=generator)
    chosen = torch.cat([agreed.unsqueeze(1), drawn], dim=1)  # (B, R, n)
    return votes.take_along_dim(chosen.unsqueeze(-1), dim=1)


def _with_scales(hierarchy: Hierarchy, log_scales: Tensor) -> Hierarchy:
    """The hierarchy with kappa and sigma replaced by the exponentials of `log_scales [2]`."""
    kappa, sigma = log_scales.exp()
    return replace(hierarchy, kappa=kappa.expand(1), sigma=sigma.expand(1))


@dataclass(frozen=True)
class _Search:
    """The search for the posterior of scenes with parts and (if given) cues `[B, m, d]`."""

    parts: Tensor
    cues: Tensor | None
    settings: ParsingStudy
    generator: torch.Generator

    def from_starts(self, hierarchy: Hierarchy, widest: float) -> Gaussian:
        """Gaussians of all starts after half of the steps. Sigma shrinks from `widest` times its final value."""
        means = starts(hierarchy, self.parts, self.settings.starts, self.generator)
        log_sds = torch.full_like(means, math.log(0.1 * hierarchy.object_sd))
        return self.ascend(hierarchy, (means, log_sds), widest=widest)

    def ascend(
        self, hierarchy: Hierarchy, q: Gaussian, log_scales: Tensor | None = None, widest: float = 1.0
    ) -> Gaussian:
        """Maximise the bounds by Adam, in half of `settings.steps`, and return the new `q`. If `log_scales` are given,
        they are learned, too, and updated in place. `from_starts` explains `widest`.
        """
        steps = self.settings.steps // 2
        means, log_sds = (each.clone().requires_grad_() for each in q)
        learned = [means, log_sds] + ([] if log_scales is None else [log_scales])
        optimiser = torch.optim.Adam(learned, lr=self.settings.rate)
        for step in range(steps):
            now = hierarchy if log_scales is None else _with_scales(hierarchy, log_scales)
            now = replace(now, sigma=now.sigma * widest ** (1 - step / steps))
            optimiser.zero_grad()
            loss = -self.bound(now, (means, log_sds), self.settings.samples).sum()
            loss.backward()
            optimiser.step()
        return means.detach(), log_sds.detach()

    @torch.no_grad()
    def best(self, hierarchy: Hierarchy, q: Gaussian, count: int) -> Gaussian:
        """The Gaussians of the `count` best starts in each scene, in decreasing order of their bounds."""
        best = self.bound(hierarchy, q, self.settings.judging).topk(count, dim=1).indices[..., None, None]
        return q[0].take_along_dim(best, dim=1), q[1].take_along_dim(best, dim=1)

    def noise(self, samples: int, like: Tensor) -> Tensor:
        return torch.randn(samples, *like.shape, generator=self.generator, dtype=like.dtype)

    def bound(self, hierarchy: Hierarchy, q: Gaussian, samples: int) -> Tensor:
        """The bound of every start `[B, R]`, in nats: the mean of log p(z, parts, cues) - log q(z) over `samples`
        samples z from q. All starts of a scene use the same noise.
        """
        means, log_sds = q
        noise = self.noise(samples, means[:, :1])
        z = means + log_sds.exp() * noise  # (samples, B, R, n, D)
        log_q = (-0.5 * (noise.square() + math.log(2 * math.pi)) - log_sds).sum((-1, -2))
        cues = None if self.cues is None else self.cues.unsqueeze(1)
        return (hierarchy.log_joint(z, self.parts.unsqueeze(1), cues) - log_q).mean(0)
