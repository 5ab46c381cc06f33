"""Parents of parts by agreement of votes: routing as published, and a k-means-like baseline.

Votes are a part's guesses at its parents' poses, `[B, m, n, D]`: what pose object j would have if it were the parent of
part i. None of these knows clutter. Each returns how much of every part belongs to every object, and the objects'
poses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.layers.dynamic_routing import agreement

_FLOOR = 1e-9


@dataclass(frozen=True)
class Parse:
    """Who belongs to whom.

    Attributes:
        parents: `[B, m, n]`, from 0 to 1; over the objects they sum to one, or to less where clutter is an answer.
        poses: of the objects, `[B, n, D]`.
    """

    parents: Tensor
    poses: Tensor


def dynamic_routing(votes: Tensor, iterations: int) -> Parse:
    """Routing by agreement (document 001, equations 1-2), from uniform weights, with `iterations` updates of logits.

    Lengths are squashed to less than one, so that poses are read off the votes: their mean by the weights.
    """
    parents = agreement(votes.transpose(1, 2), iterations).softmax(1).transpose(1, 2)
    return Parse(parents, _weighted_mean(parents, votes))


def em_routing(votes: Tensor, iterations: int, floor: float) -> Parse:
    """E- and M-steps of EM routing without trained parameters: a Gaussian with a sd for every number of a pose for each
    object, mixed in proportion to what it gets.

    Args:
        floor: least sd.
    """
    parents = votes.new_full(votes.shape[:3], 1 / votes.shape[2])
    for _ in range(iterations):
        poses = _weighted_mean(parents, votes)
        total = parents.sum(1)  # (B, n)
        squares = (votes - poses.unsqueeze(1)).square()
        variance = torch.einsum("bij,bijd->bjd", parents, squares) / total.clamp_min(_FLOOR).unsqueeze(-1) + floor**2
        log_density = -0.5 * (squares / variance.unsqueeze(1) + variance.log().unsqueeze(1)).sum(-1)
        parents = (log_density + total.clamp_min(_FLOOR).log().unsqueeze(1)).softmax(-1)
    return Parse(parents, _weighted_mean(parents, votes))


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
