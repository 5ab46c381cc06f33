"""EM for capsule regression (document 002, section 2.3), for all problems of an architecture at once.

An iteration has two matrix products. The first, X W^T, gives the prior means of the hidden vectors of all examples. The
posterior means are the prior means times Q / P (equation 19, see `capsules.py`). The second product is in the update

    W <- (posterior means)^T X (X^T X)^-1                                                    (equation 22)

Hidden vectors are stored as `[problems, capsules, d, examples]`, so that elementwise operations run along contiguous
memory. Examples, the rows of X, are processed in blocks that fit in the CPU's cache. No array of size n m d is needed.
Examples are sorted by class. If every problem includes every class, a block may have several classes. Otherwise a block
has one class, and is processed for the problems that include this class.

Updates of EM are equivariant under invertible linear maps of the inputs. So EM can use whitened inputs (X^T X = n I),
which are computed once, in float64. For these, float32 is precise enough, whatever the data. The start and the ridge
penalty, which are not equivariant, are defined for the original inputs. `Problems.own_coordinates` maps weights for
whitened inputs ("whitened weights") to weights for original inputs. Directions in which all inputs are 0 are dropped.

Shapes: n examples, p features, r of them linearly independent, m classes, K problems with C capsules of size d each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from pipeline.systems.regression.model.architectures import Architecture
from pipeline.systems.regression.model.capsules import InterpolationTable, subspace_start

CHUNK = 16_384
"""Number of rows that are processed at a time when inputs are converted to float64, and in predictions."""

BLOCK = 1 << 22
"""Maximum number of elements of hidden vectors that EM processes at a time."""


@dataclass(frozen=True)
class Examples:
    """Examples sorted by class: `inputs [n, r]` (whitened, except in online EM), and the `counts` of each class."""

    inputs: Tensor
    counts: list[int]

    @property
    def bounds(self) -> list[int]:
        """The rows of class c are `bounds[c]` to `bounds[c + 1] - 1`."""
        return list(accumulate(self.counts, initial=0))

    @cached_property
    def labels(self) -> Tensor:
        """The class of each example, `[n]`."""
        return torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts)).to(self.inputs.device)

    def blocks(self, capsules: Tensor, numbers: int) -> Iterator[tuple[slice, Tensor | None, Tensor]]:
        """Yield rows in blocks with at most `BLOCK` elements of hidden vectors (but at least one row).

        A problem includes either all rows of a block or none. Rows that no problem includes are left out.

        Args:
            capsules: index of the capsule of each class in each problem, `[K, m]`, or -1 (see `Architecture`).
            numbers: number of elements of hidden vectors, C d, that one problem has for one row.

        Yields:
            a slice of b rows; the indices `[k]` of the problems that include these rows (None: all problems); and the
            capsule index of each row's class in these problems, `[k, b]`, or `[k, 1]` if a problem lacks a class.
        """

        def slices(start: int, stop: int, problems: int) -> Iterator[slice]:
            step = max(1, BLOCK // (problems * numbers))
            return (slice(first, min(first + step, stop)) for first in range(start, stop, step))

        capsules = capsules.to(self.inputs.device)
        if bool((capsules >= 0).all()):
            for rows in slices(0, len(self.inputs), len(capsules)):
                yield rows, None, capsules.index_select(1, self.labels[rows])
            return
        for c, (start, stop) in enumerate(pairwise(self.bounds)):
            problems = (capsules[:, c] >= 0).nonzero().flatten()
            if len(problems):
                for rows in slices(start, stop, len(problems)):
                    yield rows, problems, capsules[problems, c, None]


@dataclass(frozen=True)
class Statistics:
    """Results of one pass over the examples, for each problem.

    Attributes:
        moments: sum over examples of h x^T, `[K, C, d, r]`, where x is the input, and h are the posterior (or prior)
            means of the hidden vectors. Empty if not needed (see `EStep`).
        log_likelihood: sum of log P(y | x) over the examples, in nats, `[K]`, float64.
        errors: number of misclassified examples, `[K]`.
    """

    moments: Tensor
    log_likelihood: Tensor
    errors: Tensor


class EStep:
    """The E-step for the problems of an architecture (equations 16-19 and 25)."""

    def __init__(self, architecture: Architecture, dtype: torch.dtype, device: torch.device) -> None:
        self.capsules = architecture.capsules
        _, C, d = architecture.shape
        self.interpolate = InterpolationTable(C * d / 2, dtype, device)

    def __call__(self, W: Tensor, problems: Tensor, thresholds: Tensor | None, examples: Examples) -> Statistics:
        """Compute the statistics of k problems with weights `W` in one pass over the examples.

        Args:
            W: weights `[k, C, d, r]`.
            problems: indices `[k]` of these problems in the architecture, on the CPU.
            thresholds: nu of each problem, `[k]` (equations 25-26), or None to leave moments empty. An example's prior
                means replace its posterior means if the most probable other class is at most nu times as probable as
                the example's own class.
        """
        k, C, d = W.shape[:3]
        moments = torch.zeros_like(W) if thresholds is not None else W.new_empty(0)
        likelihood = torch.zeros(k, dtype=torch.float64, device=W.device)
        errors = torch.zeros(k, dtype=torch.long, device=W.device)
        for rows, which, own in examples.blocks(self.capsules[problems], C * d):
            inputs = examples.inputs[rows]
            weights = W if which is None else W.index_select(0, which)
            nu = thresholds if thresholds is None or which is None else thresholds.index_select(0, which)
            vectors = (weights.flatten(0, 2) @ inputs.T).view(len(weights), C, d, -1)
            log_probability, wrong, factors = self._scaled(vectors, own, nu)
            sums = [(likelihood, log_probability.sum(-1, dtype=torch.float64)), (errors, wrong.sum(-1))]
            if factors is not None:
                vectors *= factors.unsqueeze(2)
                sums.append((moments, (vectors.flatten(0, 2) @ inputs).view_as(weights)))
            for total, of_block in sums:
                total.add_(of_block) if which is None else total.index_add_(0, which, of_block)
        return Statistics(moments, likelihood, errors)

    def _scaled(self, vectors: Tensor, own: Tensor, thresholds: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Apply equations 16-19 and 25 to the prior means `vectors [k, C, d, n]` of n examples in k problems.

        `own [k, n or 1]` has the capsule index of each example's own class, and `thresholds [k]` has each problem's nu.

        Returns:
            the log-probability `[k, n]` of each example's own class; whether the example is misclassified, `[k, n]`;
            factors `[k, C, n]` for `vectors`: Q / P, or 1 to keep prior means. Factors are None without thresholds.
        """
        k, C, d, n = vectors.shape
        D = C * d
        own = own.expand(k, n).unsqueeze(1)  # (k, 1, n)
        lengths = vectors[:, :, 0].square()  # (k, C, n). A loop, as vectors.square() would copy all vectors.
        for each in vectors.unbind(2)[1:]:
            lengths.addcmul_(each, each)
        total = lengths.sum(1)  # (k, n)
        l0, l1 = self.interpolate(total / 2)
        total.clamp_min_(torch.finfo(total.dtype).tiny)  # a total of 0 gives l0 = 0, so the share has no effect
        share = lengths.gather(1, own).squeeze(1).div_(total)
        even = total.new_full((), d / D)
        P = torch.lerp(even, share, l0)
        # Of the other capsules, the one with the longest vector is the most probable.
        rival = torch.lerp(even, lengths.scatter_(1, own, -1.0).amax(1).div_(total), l0)
        wrong = rival >= P
        if thresholds is None:
            return P.log(), wrong, None
        unsettled = rival > thresholds.unsqueeze(1) * P
        # Q_i / P is `other` for the capsules of other classes, and `other` + `extra` for the capsule of the own class.
        other = torch.lerp(total.new_full((), d / (2 + D)), share, l1).div_(P)
        extra = (1 - l1).div_(P).mul_(2 / (2 + D))
        other = torch.where(unsettled, other, 1.0)
        factors = lengths.copy_(other.unsqueeze(1))  # in place, because allocating memory takes as long as copying
        factors.scatter_(1, own, torch.addcmul(other, extra, unsettled.to(extra)).unsqueeze(1))
        return P.log(), wrong, factors


class Problems:
    """The training problems of an architecture, for examples with inputs `X [n, p]` and classes `y [n]`.

    Raises `ValueError` if a class has no examples, or all inputs are zero.

    Args:
        ridge: penalty on squared weights, in units of the features' mean square times a problem's number of examples.
        dtype: dtype of weights and inputs in EM's iterations.
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        architecture: Architecture,
        *,
        ridge: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.architecture = architecture
        counts = torch.bincount(y, minlength=architecture.classes)
        if int(counts.min()) == 0:
            raise ValueError(f"class {int(counts.argmin())} has no examples")
        self.moments = class_moments(X, y, architecture.classes)  # (m, p, p), X_c^T X_c
        total = self.moments.sum(0)
        values, vectors = torch.linalg.eigh(total)
        kept = values > values[-1] * len(values) * torch.finfo(torch.float64).eps
        if float(values[-1]) <= 0:
            raise ValueError("all inputs are zero")
        scale = (values[kept] / len(X)).sqrt()
        self.whitener = vectors[:, kept] / scale  # (p, r): whitened inputs are X @ whitener
        self.colourer = vectors[:, kept] * scale  # (p, r): the whitener's pseudo-inverse, transposed
        self.dtype = dtype
        self.examples = self.sort(X, y)
        gram = architecture.sum_seen(self.whitener.T @ self.moments @ self.whitener)  # (K or 1, r, r)
        if ridge:
            power = architecture.sum_seen(self.moments.diagonal(dim1=1, dim2=2).mean(-1))
            gram = gram + ridge * power[:, None, None] * (self.whitener.T @ self.whitener)
        # A pseudo-inverse is needed, because the examples of a problem with few classes may not span all directions.
        self.inverse = torch.linalg.pinv(gram, hermitian=True)
        self.passed = EStep(architecture, dtype, X.device)

    def sort(self, X: Tensor, y: Tensor) -> Examples:
        """Whiten inputs `X [n, p]` in the same way as the training inputs, and sort them by their classes `y [n]`."""
        order = y.argsort(stable=True)
        inputs = torch.empty(len(X), self.whitener.shape[1], dtype=self.dtype, device=X.device)
        for rows, into in zip(order.split(CHUNK), inputs.split(CHUNK), strict=True):
            into.copy_(X[rows].double() @ self.whitener)
        return Examples(inputs, torch.bincount(y, minlength=self.architecture.classes).tolist())

    def subspace_start(self) -> Tensor:
        """Whitened initial weights `[K, C, d, r]`, from `capsules.subspace_start` for every capsule (equation 28).
        Raises `ValueError` if the examples of a capsule's classes span fewer dimensions than the capsule's size.
        """
        _, C, d = self.architecture.shape

        @cache
        def start(classes: tuple[int, ...]) -> Tensor:
            count = sum(self.examples.counts[c] for c in classes)
            moment = self.moments[list(classes)].sum(0).cpu() / count
            return subspace_start(moment, d, classes) @ self.colourer.cpu()

        W = [
            start(tuple(c for c, capsule in enumerate(capsules) if capsule == j))
            for capsules in self.architecture.capsules.tolist()
            for j in range(C)
        ]
        return torch.stack(W).unflatten(0, (-1, C)).to(self.whitener.device, self.dtype)

    def random_start(self, sd: float, generator: torch.Generator) -> Tensor:
        """Draw normal weights of sd `sd` for the original inputs (section 2.4), and whiten them: `[K, C, d, r]`."""
        shape = (*self.architecture.shape, len(self.whitener))
        return self.whitened(sd * torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device))

    def own_coordinates(self, W: Tensor) -> Tensor:
        """Convert whitened weights `[..., d, r]` to weights `[..., d, p]` for the original inputs, float64."""
        return W.double() @ self.whitener.T

    def whitened(self, W: Tensor) -> Tensor:
        """Convert weights `[..., d, p]` to whitened weights `[..., d, r]`. This is the inverse of `own_coordinates`."""
        return (W.to(self.whitener) @ self.colourer).to(self.dtype)

    def update(self, moments: Tensor, problems: Tensor) -> Tensor:
        """The weights `[k, C, d, r]` of k `problems` by equation 22, from their moments `[k, C, d, r]`."""
        inverse = self.inverse if len(self.inverse) == 1 else self.inverse[problems]
        return (moments.flatten(1, 2).double() @ inverse).view_as(moments).to(self.dtype)


def class_moments(X: Tensor, y: Tensor, classes: int) -> Tensor:
    """The matrices X_c^T X_c, `[m, p, p]` in float64, where X_c has the inputs of class c."""
    moments = torch.zeros(classes, X.shape[1], X.shape[1], dtype=torch.float64, device=X.device)
    for c in range(classes):
        for rows in (y == c).nonzero().flatten().split(CHUNK):
            block = X[rows].double()
            moments[c].addmm_(block.T, block)
    return moments
