"""The architectures of capsule regression: one problem with all classes, or many with two capsules (document 002, 3.4).

    multiclass    one problem, with a capsule for each class
    one-vs-all    a problem for each class, with a capsule for the class and a capsule for all other classes
    all-vs-all    a problem for each pair of classes, with a capsule for each class, trained on the pair's examples only

All problems of an architecture have the same shape, so they are trained together. K problems of C capsules of d numbers
have weights `[K, C, d, p]` for inputs of p numbers.
"""

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from pipeline.systems.regression.model.capsules import predict_probabilities
from pipeline.systems.regression.settings import Decision


@dataclass(frozen=True)
class Architecture:
    """The problems of an architecture, and the capsule that represents a class in each problem.

    Attributes:
        decision: the rule that combines the problems' answers.
        capsules: index of the capsule of each of m classes in each problem, `[K, m]`. -1 for an excluded class.
        size: the capsules' size d.
    """

    decision: Decision
    capsules: Tensor
    size: int

    @property
    def classes(self) -> int:
        return self.capsules.shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, C and d: the numbers of problems, of capsules in each, and of a capsule's dimensions."""
        return len(self.capsules), int(self.capsules.max()) + 1, self.size

    def sum_seen(self, of_classes: Tensor) -> Tensor:
        """Sums of `of_classes [m, ...]` over each problem's classes, `[K, ...]`, or `[1, ...]` if all
        problems have all classes, and so equal sums.
        """
        seen = (self.capsules >= 0).to(of_classes)
        seen = seen if bool((seen == 0).any()) else seen[:1]
        return torch.einsum("km,m...->k...", seen, of_classes)


def build_architecture(decision: Decision, size: int, classes: int) -> Architecture:
    """The architecture for a decision rule, with capsules of size `size`, for two or more classes."""
    if decision == "multiclass" or classes == 2:  # with two classes, all architectures have the same single problem
        capsules = torch.arange(classes)[None]
    elif decision == "one-vs-all":
        capsules = 1 - torch.eye(classes, dtype=torch.long)
    else:
        pairs = [{i: 0, j: 1} for i, j in combinations(range(classes), 2)]
        capsules = torch.tensor([[of_pair.get(c, -1) for c in range(classes)] for of_pair in pairs])
    return Architecture(decision, capsules, size)


def class_scores(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """Scores `[n, m]` of the classes for inputs `X [n, p]`, by weights `W [K, C, d, p]`. Rows sum to 1. The decision is
    the class with the highest score.
    multiclass, or two classes: P(y | x). one-vs-all: each class's probability against all others, normalised.
    all-vs-all: votes of the pairs, normalised. Sums of probabilities, scaled to less than one vote, break ties.
    """
    answers = torch.stack([predict_probabilities(weights, X) for weights in W])  # (K, n, C)
    if len(answers) == 1:
        return answers[0]
    if architecture.decision == "one-vs-all":
        scores = answers[..., 0].T
    else:
        votes = answers.new_zeros(len(X), architecture.classes)
        support = torch.zeros_like(votes)
        for answer, classes in zip(answers, _classes_of_pairs(architecture), strict=True):
            first = answer[:, :1] >= answer[:, 1:]
            votes[:, classes] += torch.cat([first, ~first], dim=1).to(votes)
            support[:, classes] += answer
        scores = votes + 0.5 * support / architecture.classes
    return scores / scores.sum(-1, keepdim=True)


def coupled_probabilities(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """Probabilities of the classes `[n, m]`. Rows sum to 1. They are `class_scores`, except in all-vs-all with m > 2.

    In all-vs-all the probabilities of the pairs are coupled (see `couple`). The most probable class may then differ
    from the decision, the class with the most votes: a vote counts fully even if the pair's probability is near 1/2.
    """
    if len(architecture.capsules) == 1 or architecture.decision == "one-vs-all":
        return class_scores(architecture, W, X)
    pairs = X.new_zeros(len(X), architecture.classes, architecture.classes)
    for weights, (first, second) in zip(W, _classes_of_pairs(architecture), strict=True):
        pairs[:, first, second], pairs[:, second, first] = predict_probabilities(weights, X).unbind(1)
    return couple(pairs)


def _classes_of_pairs(architecture: Architecture) -> list[list[int]]:
    """The two classes of each problem of all-vs-all, in the order of its capsules."""
    return [[row.index(0), row.index(1)] for row in architecture.capsules.tolist()]


def couple(pairs: Tensor) -> Tensor:
    """Probabilities `[n, m]` of m classes from probabilities `pairs [n, m, m]` of their pairs.

    This is the second method of Wu, Lin and Weng (2004), "Probability estimates for multi-class classification by
    pairwise coupling", as in LIBSVM. It finds the probabilities p with sum one that minimise

        sum_i sum_{j != i} (r_ji p_i - r_ij p_j)^2,        r_ij = pairs[:, i, j] = P(y = i | x, y is i or j)

    The minimum is 0 if and only if some p has these pairwise probabilities, r_ij = p_i / (p_i + p_j). This p is then
    the minimiser. The minimiser solves the linear equations Q p + b = 0 with a multiplier b for sum(p) = 1. It has no
    negative elements, as Wu et al. show, so p >= 0 need not be a constraint.

    The diagonal of `pairs` is ignored, and r_ij + r_ji must be 1. Computed in float64, returned in `pairs`' dtype.
    """
    m = pairs.shape[1]
    against = pairs.mT.double()  # r_ji
    squares = against.square()
    squares.diagonal(dim1=1, dim2=2).zero_()
    Q = -against * pairs
    Q.diagonal(dim1=1, dim2=2).copy_(squares.sum(-1))
    equations = torch.nn.functional.pad(Q, (0, 1, 0, 1), value=1.0)
    equations[:, m, m] = 0
    ones = equations.new_zeros(len(pairs), m + 1)
    ones[:, m] = 1
    found = torch.linalg.solve(equations, ones)[:, :m].clamp_min(0)  # below 0 only by rounding
    return (found / found.sum(-1, keepdim=True)).to(pairs.dtype)
