"""Relative errors of predictions, defined so that features that hardly vary do not get small errors.

The error of a prediction of f(g x) is the square root of

    sum |f(g x) - prediction|^2  /  sum (|f(x) - mean|^2 + |f(g x) - mean'|^2) / 2

over images x, where mean and mean' are the means of f(x) and of f(g x). The denominator is a variance, so errors do not
change if f is scaled or a constant is added. Therefore a network that maps all images to nearly the same features does
not get smaller errors. If f(x) and f(g x) vary equally, predicting mean' for every image has an error of 1. Predicting
the features of another image has an error of about 1.4. No error is computed if `variation` is below `COLLAPSED`.

For errors within classes, the means are taken over images of the same class. So features that contain hardly any
information besides the class do not get smaller errors, either. If capsules have presences, a capsule's weight is the
mean of its presences in an image and in the moved image. So a capsule that is present only in the image before the move
has half the weight. For derivatives, and for images moved back, weights and denominators are those of f(x) alone.

Shapes: values `[N, n, k]` and weights `[N, n]` of n capsules with k values each, for N images.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

COLLAPSED = 1e-3
"""Features whose sd over images is below this share of their root mean square count as constant."""


def squared(difference: Tensor, weights: Tensor) -> Tensor:
    """Weighted sum of squares of `difference [N, n, k]` for each image, `[N]`, in double precision."""
    return (weights.double() * difference.double().square().sum(-1)).sum(-1)


def deviations(values: Tensor, weights: Tensor, classes: Tensor | None = None) -> Tensor:
    """Each image's weighted squared distance, `[N]`, from the weighted mean over all images or those of its class.

    Args:
        classes: the class of each image, `[N]`, whole numbers; by default all images are one class.
    """
    alike = torch.zeros(len(values), dtype=torch.long, device=values.device) if classes is None else classes
    member = F.one_hot(alike).double()  # (N, classes)
    w = weights.double().unsqueeze(-1)
    sums = torch.einsum("nc,nik->cik", member, w * values.double())
    total = torch.einsum("nc,nik->cik", member, w).clamp_min(torch.finfo(torch.float64).tiny)
    return squared(values.double() - (sums / total)[alike], weights)


def variation(values: Tensor, weights: Tensor) -> float:
    """Sd of values over images, as a share of their root mean square. 0 if all values are zero."""
    size = float(squared(values, weights).sum())
    return float((deviations(values, weights).sum() / size).sqrt()) if size > 0 else 0.0


def dimensions(values: Tensor, weights: Tensor) -> float:
    """Effective number of directions in which values vary: (tr C)^2 / tr(C^2) for their covariance C. 0 if C is 0."""
    w = weights.double().unsqueeze(-1)
    mean = (w * values.double()).sum(0) / w.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    flat = (w.sqrt() * (values.double() - mean)).flatten(1)
    gram = flat @ flat.T
    total = float(gram.square().sum())
    return float(gram.trace().square() / total) if total > 0 else 0.0


def relative(errors: Tensor, scale: Tensor, resamples: int, seed: int) -> tuple[float, float]:
    """sqrt(sum(`errors [N]`) / sum(`scale [N]`)) and its standard error, from `resamples` bootstrap samples."""
    generator = torch.Generator().manual_seed(seed)
    count = len(errors)
    drawn = torch.randint(count, (resamples, count), generator=generator)
    ratios = (errors.cpu()[drawn].sum(1) / scale.cpu()[drawn].sum(1).clamp_min(1e-300)).sqrt()
    return float((errors.sum() / scale.sum()).sqrt()), float(ratios.std())
