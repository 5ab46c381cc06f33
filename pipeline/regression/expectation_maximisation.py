"""EM for capsule regression (document 002, section 2.3), over many problems at once.

An iteration is two matrix products and what lies between them. With M = X W^T, the capsules' vectors of all examples,
the posterior means are M with every vector scaled by Q / P (equation 19), and the update is

    W <- (posterior means)^T X (X^T X)^-1                                                    (equation 22)

Examples are sorted by class, so that within a block of rows each problem has one label; a block meets the weights of
all problems that see its class in one product. Rows go through both products in chunks: nothing of the size n m p is
made.

All of it is equivariant under linear maps of the inputs, but for the start and the ridge. So the inputs are whitened
once (X^T X = n I), in float64, which keeps single precision good for any data; weights come out in the inputs' own
coordinates. Directions in which the inputs do not vary are left out: no data speak about them.

Shapes: n examples, p features of which r are independent, m classes, K problems of C capsules of at most d numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.regression.architectures import Architecture
from pipeline.regression.capsules import InterpolationTable, subspace_start

CHUNK = 16_384
"""Rows that go through an iteration together."""


@dataclass(frozen=True)
class Examples:
    """Whitened inputs `[n, r]` sorted by class; those of class c are rows bounds[c] to bounds[c + 1]."""

    inputs: Tensor
    bounds: list[int]

    def blocks(self, capsules: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each class and chunk of its rows: inputs `[rows, r]`, the problems that see it, its capsule in each."""
        found = []
        for c, (start, stop) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            problems = (capsules[:, c] >= 0).nonzero().flatten()
            if len(problems) and stop > start:
                at = problems.to(self.inputs.device)
                own = capsules[problems, c].to(self.inputs.device)
                found += [(rows, at, own) for rows in self.inputs[start:stop].split(CHUNK)]
        return found


@dataclass(frozen=True)
class Statistics:
    """What one pass over examples gives, by problem.

    Attributes:
        moments: sum of posterior means times inputs, `[K, C, d, r]`.
        log_likelihood: `[K]`, sum over the examples, nats, float64.
        errors: `[K]`, examples that another capsule wins.
    """

    moments: Tensor
    log_likelihood: Tensor
    errors: Tensor


class EStep:
    """Equations 16-19 and 25 for the problems of an architecture."""

    def __init__(self, architecture: Architecture, dtype: torch.dtype, device: torch.device) -> None:
        self.architecture = architecture
        self.alike = bool((architecture.sizes == architecture.sizes[0, 0]).all())
        variables = set(architecture.sizes.sum(-1).tolist())
        self.tables = {float(D): InterpolationTable(D / 2, dtype, device) for D in variables}

    def __call__(self, W: Tensor, problems: Tensor, thresholds: Tensor | None, examples: Examples) -> Statistics:
        """One pass over the examples: statistics of some of the problems under their weights.

        Args:
            W: `[k, C, d, r]`.
            problems: `[k]`, which of the architecture's they are, on the CPU.
            thresholds: nu of each problem, `[k]` (equations 25-26: posterior means of examples whose runner-up has at
                most nu times their own class's probability are replaced by prior means). None: only likelihood and
                errors are worked out, and moments are empty.
        """
        arc = self.architecture.take(problems)
        k, C, d = W.shape[:3]
        device = W.device
        moments = torch.zeros_like(W) if thresholds is not None else W.new_empty(0)
        likelihood = torch.zeros(k, dtype=torch.float64, device=device)
        errors = torch.zeros(k, dtype=torch.long, device=device)
        sizes = arc.sizes.to(W)
        for rows, at, own in examples.blocks(arc.capsules):
            everything = len(at) == k
            weights = W if everything else W[at]
            vectors = rows @ weights.flatten(0, 2).T
            vectors = vectors.view(len(rows), len(at), C, d)
            scaled = self._scaled(vectors, sizes[at], own, thresholds if thresholds is None else thresholds[at])
            likelihood.index_add_(0, at, scaled.log_probability.sum(0, dtype=torch.float64))
            errors.index_add_(0, at, scaled.wrong.sum(0))
            if thresholds is not None:
                vectors *= scaled.factors.unsqueeze(-1)
                found = (vectors.flatten(1).T @ rows).view_as(weights)
                moments.index_add_(0, at, found) if not everything else moments.add_(found)
        return Statistics(moments, likelihood, errors)

    def _scaled(self, vectors: Tensor, sizes: Tensor, own: Tensor, thresholds: Tensor | None) -> _Scaled:
        """Equations 16-19 and 25 of a block of rows whose class is capsule `own [k]`: vectors `[n, k, C, d]`."""
        k, C = sizes.shape
        D = sizes.sum(-1)
        lengths = vectors.square().sum(-1)  # (n, k, C)
        total = lengths.sum(-1)  # (n, k)
        l0, l1 = self._interpolate(total / 2, D)
        mask = torch.nn.functional.one_hot(own, C).bool()  # (k, C)
        total = total.clamp_min(torch.finfo(total.dtype).tiny)  # without length l0 is 0, and shares do not matter
        size = sizes.gather(1, own.unsqueeze(1)).squeeze(1)  # (k)
        share = lengths[:, torch.arange(k, device=own.device), own] / total
        P = torch.lerp(size / D, share, l0)
        if self.alike:  # of capsules of one size the longest is the most probable
            rival = torch.lerp(size / D, lengths.masked_fill(mask, -1.0).amax(-1) / total, l0)
        else:
            shares = lengths / total.unsqueeze(-1)
            everyone = torch.lerp((sizes / D.unsqueeze(-1)).expand_as(shares), shares, l0.unsqueeze(-1))
            rival = everyone.masked_fill(mask, -1.0).amax(-1)
        wrong = rival >= P
        if thresholds is None:
            return _Scaled(P.log(), wrong, lengths)
        other = torch.lerp(size / (2 + D), share, l1) / P  # Q_i / P of the capsules i that are not the class's
        extra = (1 - l1) * (2 / (2 + D)) / P  # and what that of the class's own has more
        settled = rival <= thresholds * P
        other = other.masked_fill(settled, 1.0)
        extra = extra.masked_fill(settled, 0.0)
        return _Scaled(P.log(), wrong, other.unsqueeze(-1) + extra.unsqueeze(-1) * mask.to(extra))

    def _interpolate(self, beta: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
        """l0 and l1 of `beta [n, k]` for problems of D hidden variables `[k]`."""
        if len(self.tables) == 1:
            return next(iter(self.tables.values()))(beta)
        l0, l1 = torch.empty_like(beta), torch.empty_like(beta)
        for variables, table in self.tables.items():
            at = variables == D
            l0[:, at], l1[:, at] = table(beta[:, at])
        return l0, l1


@dataclass(frozen=True)
class _Scaled:
    log_probability: Tensor  # (n, k), of the examples' own class
    wrong: Tensor  # (n, k)
    factors: Tensor  # (n, k, C), Q / P


class Problems:
    """The training problems of an architecture on one set of examples.

    Args:
        X: inputs `[n, p]`.
        y: classes `[n]`, integers from 0.
        ridge: penalty on squared weights, in mean squares of a feature times the number of examples (0: none).
        dtype: of the iterations.

    Raises:
        ValueError: a class without examples, or inputs that are all zero.
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
        self.counts = counts.tolist()
        self.moments = class_moments(X, y, architecture.classes)  # (m, p, p), X_c^T X_c
        total = self.moments.sum(0)
        values, vectors = torch.linalg.eigh(total)
        kept = values > values[-1] * len(values) * torch.finfo(torch.float64).eps
        if float(values[-1]) <= 0:
            raise ValueError("all inputs are zero")
        scale = (values[kept] / len(X)).sqrt()
        self.whitener = vectors[:, kept] / scale  # (p, r): whitened = x whitener
        self.colourer = vectors[:, kept] * scale  # (p, r): its pseudo-inverse, transposed
        self.dtype = dtype
        self.examples = self.sort(X, y)
        self.inverse = self._inverse_gram(ridge)
        self.passed = EStep(architecture, dtype, X.device)

    def sort(self, X: Tensor, y: Tensor) -> Examples:
        """Examples as the iterations want them, whitened as the training examples are."""
        order = y.argsort(stable=True)
        counts = torch.bincount(y, minlength=self.architecture.classes)
        inputs = torch.empty(len(X), self.whitener.shape[1], dtype=self.dtype, device=X.device)
        for rows, into in zip(order.split(CHUNK), inputs.split(CHUNK), strict=True):
            into.copy_(X[rows].double() @ self.whitener)
        return Examples(inputs, [0, *counts.cumsum(0).tolist()])

    def _inverse_gram(self, ridge: float) -> Tensor:
        """`(X^T X + penalty)^-1` of each problem in whitened coordinates `[K or 1, r, r]`, float64."""
        whitened = self.whitener.T @ self.moments @ self.whitener  # (m, r, r)
        seen = (self.architecture.capsules >= 0).to(whitened)  # (K, m)
        seen = seen if bool((seen == 0).any()) else seen[:1]
        gram = torch.einsum("km,mij->kij", seen, whitened)
        if ridge:
            power = torch.einsum("km,mii->k", seen, self.moments) / len(self.whitener)
            gram = gram + ridge * power[:, None, None] * (self.whitener.T @ self.whitener)
        # A problem that sees few classes may see less than all directions.
        return torch.linalg.pinv(gram, hermitian=True)

    def subspace_start(self) -> Tensor:
        """Weights `[K, C, d, r]` from the leading directions of each capsule's examples (equation 28).

        Raises:
            ValueError: a capsule has fewer examples, or fewer directions among them, than numbers.
        """
        arc = self.architecture
        W = torch.zeros(*arc.sizes.shape, arc.size, self.whitener.shape[1], dtype=torch.float64)
        known: dict[tuple[tuple[int, ...], int], Tensor] = {}
        for k, (capsules, sizes) in enumerate(zip(arc.capsules.tolist(), arc.sizes.tolist(), strict=True)):
            for j, size in enumerate(sizes):
                classes = tuple(c for c, capsule in enumerate(capsules) if capsule == j)
                if (classes, size) not in known:
                    known[classes, size] = self._capsule_start(classes, size)
                W[k, j, :size] = known[classes, size]
        return W.to(self.whitener.device, self.dtype)

    def _capsule_start(self, classes: tuple[int, ...], size: int) -> Tensor:
        count = sum(self.counts[c] for c in classes)
        whose = f"class {classes[0]}" if len(classes) == 1 else f"classes {', '.join(map(str, classes))}"
        if count < size:
            raise ValueError(
                f"{whose}: {count} example{'s' * (count != 1)}, fewer than the {size} numbers of a capsule"
            )
        try:
            return subspace_start(self.moments[list(classes)].sum(0).cpu() / count, size) @ self.colourer.cpu()
        except ValueError as error:
            raise ValueError(f"{whose}: {error}") from None

    def random_start(self, sd: float, generator: torch.Generator) -> Tensor:
        """Weights `[K, C, d, r]` with independent numbers of that sd in the inputs' own coordinates (section 2.4)."""
        arc = self.architecture
        shape = (*arc.sizes.shape, arc.size, len(self.whitener))
        noise = sd * torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        used = torch.arange(arc.size).expand(*arc.sizes.shape, -1) < arc.sizes.unsqueeze(-1)
        W = noise.to(self.whitener) * used.unsqueeze(-1).to(self.whitener)
        return (W @ self.colourer).to(self.dtype)

    def own_coordinates(self, W: Tensor) -> Tensor:
        """Weights `[..., d, r]` for inputs as they came in: `[..., d, p]`, float64."""
        return W.double() @ self.whitener.T

    def whitened(self, W: Tensor) -> Tensor:
        """The inverse of `own_coordinates`."""
        return (W.to(self.whitener) @ self.colourer).to(self.dtype)

    def update(self, moments: Tensor, problems: Tensor) -> Tensor:
        """Equation 22 for some of the problems: weights `[k, C, d, r]` from their statistics of the same shape."""
        inverse = self.inverse if len(self.inverse) == 1 else self.inverse[problems]
        return (moments.flatten(1, 2).double() @ inverse).view_as(moments).to(self.dtype)


def class_moments(X: Tensor, y: Tensor, classes: int) -> Tensor:
    """`X_c^T X_c` of each class, `[m, p, p]`, float64."""
    moments = torch.zeros(classes, X.shape[1], X.shape[1], dtype=torch.float64, device=X.device)
    for c in range(classes):
        for rows in (y == c).nonzero().flatten().split(CHUNK):
            block = X[rows].double()
            moments[c].addmm_(block.T, block)
    return moments
