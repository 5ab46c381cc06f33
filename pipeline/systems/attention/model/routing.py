"""Parents of parts by agreement of votes: routing as published, variants with more steps, and a k-means-like baseline.

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
    """Who belongs to whom.

    Attributes:
        parents: `[B, m, n]`, from 0 to 1; over the objects, and clutter where it is an answer, they sum to one.
        poses: of the objects, `[B, n, D]`.
        clutter: how much of every part is nobody's, `[B, m]`; None for methods that have no such answer.
    """

    parents: Tensor
    poses: Tensor
    clutter: Tensor | None = None

    @property
    def chosen(self) -> Tensor:
        """Whose each part is most, `[B, m]`; n where it is nobody's."""
        answers = self.parents if self.clutter is None else _with(self.parents, self.clutter)
        return answers.argmax(-1)


def dynamic_routing(votes: Tensor, iterations: int) -> Parse:
    """Routing by agreement (document 001, equations 1-2), from uniform weights, with `iterations` updates of logits.

    Lengths are squashed to less than one, so that poses are read off the votes: their mean by the weights.
    """
    parents = agreement(votes.transpose(1, 2), iterations).transpose(1, 2)
    return Parse(parents, _weighted_mean(parents, votes))


def em_routing(votes: Tensor, iterations: int, floor: float) -> Parse:
    """E- and M-steps of EM routing without trained parameters, from even parents: a Gaussian with a sd for every number
    of a pose for each object, mixed in proportion to what it gets.

    Args:
        floor: least sd.
    """
    return _em(votes, torch.zeros_like(votes[..., 0]).softmax(-1), iterations, floor, None)[0]


def em_routing_of_several(
    votes: Tensor, iterations: int, floor: float, starts: int, log_clutter: Tensor | None, generator: torch.Generator
) -> Parse:
    """The same from even and from random parents, of which each scene keeps the likeliest end.

    Args:
        log_clutter: log density of each part as nobody's, in the units of votes, `[B, m]`; None: there is no clutter.
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
    """From parents `[B, m, n]` on; and the log likelihood of the mixture that the last parents follow from, `[B]`."""
    B, m, n, _ = votes.shape
    clutter, log_likelihood = votes.new_zeros(B, m), votes.new_zeros(B)
    if log_clutter is not None:  # it begins with a component's share
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
    """Each part to the object whose mean vote is nearest to its own; empty objects keep their mean."""
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
