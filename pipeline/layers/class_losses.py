"""Classification losses on the activations or lengths of class capsules.

Shapes: activations or lengths `[B, n]` of n classes, labels `[B]`. Each function returns one loss per image, `[B]`.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def margin_loss(lengths: Tensor, labels: Tensor, present: float, absent: float, absent_weight: float) -> Tensor:
    """Margin loss of Sabour et al. 2017 (document 001, equation 3), summed over classes:

    max(0, present - length)^2 for the true class, absent_weight max(0, length - absent)^2 for each other class.
    """
    target = one_hot(labels, lengths.shape[-1]).to(lengths)
    missing = (present - lengths).clamp_min(0).square()
    surplus = (lengths - absent).clamp_min(0).square()
    return (target * missing + absent_weight * (1 - target) * surplus).sum(-1)


def spread_loss(activations: Tensor, labels: Tensor, margin: Tensor | float) -> Tensor:
    """Spread loss (document 004, equation 3): max(0, margin - lead)^2, summed over the wrong classes. The lead is the
    activation of the true class minus the activation of the wrong class.
    """
    target = one_hot(labels, activations.shape[-1]).to(activations)
    lead = (activations * target).sum(-1, keepdim=True) - activations
    return ((margin - lead).clamp_min(0).square() * (1 - target)).sum(-1)


def cross_entropy(activations: Tensor, labels: Tensor) -> Tensor:
    """Negative log of the true class's share in the sum of all activations. Activations must not be negative."""
    target = one_hot(labels, activations.shape[-1]).to(activations)
    least = torch.finfo(activations.dtype).tiny
    return activations.sum(-1).clamp_min(least).log() - (activations * target).sum(-1).clamp_min(least).log()
