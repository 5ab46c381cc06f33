"""The architectures of capsule regression: how classification is divided into problems (document 002, section 3.4).

A problem is a classification task with its own capsules. Each of its capsules represents one class or several:

    multiclass    one problem, with a capsule for each class
    one-vs-all    a problem for each class, with a capsule for the class and a capsule for all other classes
    all-vs-all    a problem for each pair of classes, with two capsules, trained on examples of these two classes only
                  (pairs are in the order of `itertools.combinations`)

All problems of an architecture have the same number of capsules, so they are trained together. For inputs of p numbers,
K problems with C capsules each have weights `[K, C, d, p]`, where d is the size of the capsules' hidden vectors.
"""

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from pipeline.systems.regression.model.capsules import predict_probabilities
from pipeline.systems.regression.settings import Decision


@dataclass(frozen=True)
class Architecture:
    """The K problems of an architecture, and the capsule that represents each of the m classes in each problem.

    Attributes:
        decision: the architecture's name. It decides how `class_scores` combines the problems' probabilities.
        capsules: `[K, m]`, the index of each class's capsule in each problem, or -1 if the problem lacks the class.
        size: the size d of the capsules' hidden vectors.
    """

    decision: Decision
    capsules: Tensor
    size: int

    @property
    def classes(self) -> int:
        return self.capsules.shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, C and d: the number of problems, the number of capsules in a problem, and the size of a capsule."""
        return len(self.capsules), int(self.capsules.max()) + 1, self.size

    def sum_seen(self, of_classes: Tensor) -> Tensor:
        """Sum `of_classes [m, ...]` over the classes of each problem. The result is `[K, ...]`, or `[1, ...]` if every
        problem has all classes, because all K sums are then equal.
        """
        seen = (self.capsules >= 0).to(of_classes)
        seen = seen if bool((seen == 0).any()) else seen[:1]
        return torch.einsum("km,m...->k...", seen, of_classes)


def build_architecture(decision: Decision, size: int, classes: int) -> Architecture:
    """The architecture for a decision rule, with capsules of size `size`, for two or more classes."""
    if decision == "multiclass" or classes == 2:  # two classes need only one problem, in any architecture
        capsules = torch.arange(classes)[None]
    elif decision == "one-vs-all":
        capsules = 1 - torch.eye(classes, dtype=torch.long)
    else:
        pairs = [{i: 0, j: 1} for i, j in combinations(range(classes), 2)]
        capsules = torch.tensor([[of_pair.get(c, -1) for c in range(classes)] for of_pair in pairs])
    return Architecture(decision, capsules, size)


def class_scores(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """Scores `[n, m]` of the classes for inputs `X [n, p]` and weights `W [K, C, d, p]`. Each row sums to 1. An input
    is assigned to the class with the highest score. If there is only one problem, the scores are P(y | x). In
    one-vs-all, a class's score is its probability in its own problem, normalised over the classes. In all-vs-all, each
    problem votes for the more probable class of its pair, and a class's score is its number of votes, normalised. To
    break ties, a class's sum of probabilities, scaled to less than one vote, is added to its number of votes.
    """
    answers = torch.stack([predict_probabilities(weights, X) for weights in W])  # (K, n, C)
    if len(answers) == 1:
        return answers[0]
    if architecture.decision == "one-vs-all":
        scores = answers[..., 0].T
    else:
        votes = answers.new_zeros(len(X), architecture.classes)
        support = torch.zeros_like(votes)
        for answer, (i, j) in zip(answers, combinations(range(architecture.classes), 2), strict=True):
            first = answer[:, :1] >= answer[:, 1:]
            votes[:, [i, j]] += torch.cat([first, ~first], dim=1).to(votes)
            support[:, [i, j]] += answer
        scores = votes + 0.5 * support / architecture.classes
    return scores / scores.sum(-1, keepdim=True)


def coupled_probabilities(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """Probabilities `[n, m]` of the classes, for inputs `X [n, p]` and weights `W [K, C, d, p]`. Each row sums to 1.
    They equal `class_scores`, except in all-vs-all with m > 2. There, `couple` computes them from the probabilities in
    pairs, while `class_scores` counts the pairs that each class wins. So the class with the highest score may be less
    probable than another.
    """
    if len(architecture.capsules) == 1 or architecture.decision == "one-vs-all":
        return class_scores(architecture, W, X)
    pairs = X.new_zeros(len(X), architecture.classes, architecture.classes)
    for weights, (i, j) in zip(W, combinations(range(architecture.classes), 2), strict=True):
        pairs[:, i, j], pairs[:, j, i] = predict_probabilities(weights, X).unbind(1)
    return couple(pairs)


def couple(pairs: Tensor) -> Tensor:
    """Compute probabilities `[n, m]` of m classes from the probabilities in all pairs of classes, `pairs [n, m, m]`.

    This is the second method of Wu, Lin and Weng (2004), "Probability estimates for multi-class classification by
    pairwise coupling", as in LIBSVM. For each input it finds the probabilities p, with sum 1, that minimise

        sum_i sum_{j != i} (r_ji p_i - r_ij p_j)^2,        r_ij = pairs[:, i, j] = P(y = i | x, y is i or j)

    The minimum is 0 if and only if some p has r_ij = p_i / (p_i + p_j) for all pairs. This p is then the minimiser. The
    minimiser solves (Q p)_i + b = 0 for all i, and sum(p) = 1, where Q_ii = sum_{j != i} r_ji^2, Q_ij = -r_ji r_ij, and
    b is a Lagrange multiplier. Wu et al. show that p has no negative elements, so the constraint p >= 0 is not needed.

    r_ij + r_ji must be 1. The diagonal is ignored. Computation is in float64, but the result has the dtype of `pairs`.
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
    found = torch.linalg.solve(equations, ones)[:, :m].clamp_min(0)  # negative only by rounding errors
    return (found / found.sum(-1, keepdim=True)).to(pairs.dtype)
