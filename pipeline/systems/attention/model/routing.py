"""Methods that find the parents of parts by agreement of votes: dynamic routing, EM routing and a form of k-means.

A vote is the pose that an object would have if it were the parent of a part. Votes are `[B, m, n, D]` for B scenes of m
parts and n objects with poses of D numbers. Each method assigns every part to the objects and estimates the objects'
poses. The published methods do not model clutter (parts without a parent). Here, `em_routing` can model it.
"""

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
        parents: weights `[B, m, n]` of the possible parents of each part. A part's weights sum to one. If the method
            models clutter, the shape is `[B, m, n + 1]`, and the last weight is that of clutter.
        poses: the objects' poses, `[B, n, D]`.
    """

    parents: Tensor
    poses: Tensor

    @property
    def chosen(self) -> Tensor:
        """The index of the parent with the largest weight, `[B, m]`. Clutter has index n."""
        return self.parents.argmax(-1)


def dynamic_routing(votes: Tensor, iterations: int) -> Parse:
    """Routing by agreement (document 001, equations 1-2) from uniform weights, with `iterations` updates of logits.

    The returned poses are weighted means of the votes. They are not squashed, because poses may be longer than one.
    """
    parents = agreement(votes.transpose(1, 2), iterations).transpose(1, 2)
    return Parse(parents, _weighted_mean(parents, votes))


def em_routing(
    votes: Tensor, iterations: int, floor: float, seed: int, starts: int = 1, log_clutter: Tensor | None = None
) -> Parse:
    """EM routing without trained parameters. It fits a mixture of Gaussians to the votes, one Gaussian for each object,
    with an sd for each dimension. The mixing weight of an object is the share of all parts that is assigned to it.

    Args:
        floor: lower limit of the sds.
        starts: number of starts. The first start has uniform weights of parents, the others have random weights. Each
            scene keeps the start with the highest likelihood.
        log_clutter: log density of each part's vote under clutter, `[B, m]`, in nats. If None, clutter is not modelled.
    """
    B, m, n, _ = votes.shape
    noise = torch.randn(B, starts, m, n, generator=torch.Generator().manual_seed(seed), dtype=votes.dtype)
    noise[:, 0] = 0
    votes, parents = votes.repeat_interleave(starts, 0), noise.softmax(-1).flatten(0, 1)
    if log_clutter is not None:  # clutter starts with the mean weight of all n + 1 components
        log_clutter = log_clutter.repeat_interleave(starts, 0).unsqueeze(-1)
        parents = torch.cat([parents * n / (n + 1), torch.full_like(log_clutter, 1 / (n + 1))], dim=-1)
    log_likelihood = votes.new_zeros(B * starts)
    for _ in range(iterations):
        objects = parents[..., :n]
        squares = (votes - _weighted_mean(objects, votes).unsqueeze(1)).square()
        variance = _weighted_mean(objects, squares).clamp_min(floor**2).unsqueeze(1)
        log_density = -0.5 * (squares / variance + (2 * math.pi * variance).log()).sum(-1)
        if log_clutter is not None:
            log_density = torch.cat([log_density, log_clutter], dim=-1)
        joint = log_density + (parents.sum(1) / m).clamp_min(_FLOOR).log().unsqueeze(1)
        log_likelihood, parents = joint.logsumexp(-1).sum(1), joint.softmax(-1)
    best = log_likelihood.view(B, starts).argmax(1) + starts * torch.arange(B)
    return Parse(parents[best], _weighted_mean(parents[..., :n], votes)[best])


def k_means(votes: Tensor, iterations: int) -> Parse:
    """Assign each part to the object whose pose is nearest to the part's vote for this object. At first, an object's
    pose is the mean of all votes for it, later that of its own parts' votes. An object without parts keeps its pose.
    """
    poses = votes.mean(1)
    parents = votes.new_zeros(votes.shape[:3])
    for _ in range(iterations):
        nearest = (votes - poses.unsqueeze(1)).square().sum(-1).argmin(-1)
        parents = torch.nn.functional.one_hot(nearest, votes.shape[2]).to(votes)
        poses = torch.where(parents.sum(1).unsqueeze(-1) > 0, _weighted_mean(parents, votes), poses)
    return Parse(parents, poses)


def _weighted_mean(parents: Tensor, votes: Tensor) -> Tensor:
    total = torch.einsum("bij,bijd->bjd", parents, votes)
    return total / parents.sum(1).clamp_min(_FLOOR).unsqueeze(-1)
