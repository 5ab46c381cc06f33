"""Classification losses on the activations or lengths of class capsules.

Shapes: activations or lengths `[B, n]` of n classes, labels `[B]`; each function returns the loss of every image `[B]`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def one_hot(labels: Tensor, like: Tensor) -> Tensor:
    """1 at the class `labels [B]`, else 0, as `like [B, n]`; `one_hot` of the library is unknown to `vmap`."""
    return (labels.unsqueeze(-1) == torch.arange(like.shape[-1], device=like.device)).to(like)


def margin_loss(lengths: Tensor, labels: Tensor, present: float, absent: float, absent_weight: float) -> Tensor:
    """Of Sabour et al. 2017 (document 001, equation 3): the class's length is to exceed `present`, others to stay below
    `absent`; squared shortfalls and excesses, the latter times `absent_weight`, summed over classes.
    """
    own = one_hot(labels, lengths)
    missing = (present - lengths).clamp_min(0).square()
    surplus = (lengths - absent).clamp_min(0).square()
    return (own * missing + absent_weight * (1 - own) * surplus).sum(-1)


def spread_loss(activations: Tensor, labels: Tensor, margin: Tensor | float) -> Tensor:
    """Squared shortfalls of the class's lead over each other behind `margin`, summed (document 004, equation 3).

    Args:
        margin: scalar.
    """
    own = one_hot(labels, activations)
    lead = (activations * own).sum(-1, keepdim=True) - activations
    return ((margin - lead).clamp_min(0).square() * (1 - own)).sum(-1)


def cross_entropy(activations: Tensor, labels: Tensor) -> Tensor:
    """Negative log of the class's share in all activations, which are not negative."""
    own = one_hot(labels, activations)
    least = torch.finfo(activations.dtype).tiny
    return activations.sum(-1).clamp_min(least).log() - (activations * own).sum(-1).clamp_min(least).log()
