"""Finds parents of parts by agreement of votes: published routing, longer variants, and a k-means-like baseline.

Votes `[B, m, n, D]` are a part's predictions of its parents' poses: the pose that object j would have if it were the
parent of part i. As published, none of these methods models clutter. Each returns the assignment of every part to the
objects, and the objects' poses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.layers.dynamic_routing import agreement

_FLOOR = 1e-9


@dataclass(frozen=True)
class Parse:
    """The assignment of parts to objects.

    Attributes:
        parents: weights `[B, m, n]` in [0, 1]; with `clutter`, if any, they sum to one for each part.
        poses: the objects' poses, `[B, n, D]`.
        clutter: weight of no parent for each part, `[B, m]`; None for methods without clutter.
    """

    parents: Tensor
    poses: Tensor
    clutter: Tensor | None = None

    @property
    def chosen(self) -> Tensor:
        """The parent with the largest weight, `[B, m]`; n for clutter."""
        answers = self.parents if self.clutter is None else _with(self.parents, self.clutter)
        return answers.argmax(-1)


def dynamic_routing(votes: Tensor, iterations: int) -> Parse:
    """Routing by agreement (document 001, equations 1-2), from uniform weights, with `iterations` updates of logits.

    Squashed lengths are below one, so the returned poses are weighted means of the votes instead.
    """
    parents = agreement(votes.transpose(1, 2), iterations).transpose(1, 2)
    return Parse(parents, _weighted_mean(parents, votes))


def em_routing(votes: Tensor, iterations: int, floor: float) -> Parse:
    """E- and M-steps of EM routing without trained parameters, from uniform parents: a mixture with one Gaussian for
    each object, with an sd for each dimension; mixing weights are proportional to the assigned parts.

    Args:
        floor: minimum sd.
    """
    return _em(votes, torch.zeros_like(votes[..., 0]).softmax(-1), iterations, floor, None)[0]


def em_routing_of_several(
    votes: Tensor, iterations: int, floor: float, starts: int, log_clutter: Tensor | None, generator: torch.Generator
) -> Parse:
    """`em_routing` from uniform and from random parents; each scene keeps the result with the highest likelihood.

    Args:
        log_clutter: log density of each part as clutter, in the units of votes, `[B, m]`; None: there is no clutter.
    """
    B, m, n, _ = votes.shape
    noise = torch.randn(B, starts, m, n, generator=generator, device=votes.device, dtype=votes.dtype)
    noise[:, 0] = 0
    clutter = None if log_clutter is None else log_clutter.repeat_interleave(starts, 0)
    first = noise.softmax(-1).flatten(0, 1)
    parse, log_likelihood = _em(votes.repeat_interleave(starts, 0), first, iterations, floor, clutter)
    best = log_likelihood.view(B, starts).argmax(1) + starts * torch.arange(B, device=votes.device)
    return Parse(parse.parents[best], parse.poses[best], None if parse.clutter is None else parse.clutter[best])


def _em(
    votes: Tensor, parents: Tensor, iterations: int, floor: float, log_clutter: Tensor | None
) -> tuple[Parse, Tensor]:
    """EM from `parents [B, m, n]`; returns also the log likelihood `[B]` of the mixture in the last E-step."""
    B, m, n, _ = votes.shape
    clutter, log_likelihood = votes.new_zeros(B, m), votes.new_zeros(B)
    if log_clutter is not None:  # its initial weight is that of one component
        clutter = clutter + 1 / (n + 1)
        parents = parents * n / (n + 1)
    for _ in range(iterations):
        poses, total = _weighted_mean(parents, votes), parents.sum(1)  # (B, n, D), (B, n)
        squares = (votes - poses.unsqueeze(1)).square()
        variance = torch.einsum("bij,bijd->bjd", parents, squares) / total.clamp_min(_FLOOR).unsqueeze(-1)
        variance = variance.clamp_min(floor**2)
        log_density = -0.5 * (squares / variance.unsqueeze(1) + (2 * math.pi * variance).log().unsqueeze(1)).sum(-1)
        joint = log_density + _log_share(total, m).unsqueeze(1)
        if log_clutter is not None:
            joint = _with(joint, log_clutter + _log_share(clutter.sum(1, keepdim=True), m))
        log_likelihood, answers = joint.logsumexp(-1).sum(1), joint.softmax(-1)
        parents, clutter = answers[..., :n], answers[..., n:].sum(-1)
    return Parse(parents, _weighted_mean(parents, votes), None if log_clutter is None else clutter), log_likelihood


def _log_share(total: Tensor, parts: int) -> Tensor:
    return (total / parts).clamp_min(_FLOOR).log()


def _with(objects: Tensor, clutter: Tensor) -> Tensor:
    """Clutter `[B, m]` as a last column of `[B, m, n]`."""
    return torch.cat([objects, clutter.unsqueeze(-1)], dim=-1)


def k_means(votes: Tensor, iterations: int) -> Parse:
    """Assign each part to the object whose mean vote is nearest to the part's; empty objects keep their mean."""
    poses = votes.mean(1)
    parents = votes.new_zeros(votes.shape[:3])
    for _ in range(iterations):
        nearest = (votes - poses.unsqueeze(1)).square().sum(-1).argmin(-1)
        parents = torch.nn.functional.one_hot(nearest, votes.shape[2]).to(votes)
        poses = torch.where(parents.sum(1).unsqueeze(-1) > 0, _weighted_mean(parents, votes), poses)
    return Parse(parents, poses)


def _weighted_sum(parents: Tensor, votes: Tensor) -> Tensor:
    return torch.einsum("bij,bijd->bjd", parents, votes)


def _weighted_mean(parents: Tensor, votes: Tensor) -> Tensor:
    return _weighted_sum(parents, votes) / parents.sum(1).clamp_min(_FLOOR).unsqueeze(-1)
