"""How capsule regression decides between many classes: one problem for all, or many with two (document 002, 3.4).

    multiclass    one problem, a capsule for each class
    one-vs-all    a problem for each class: its capsule against one for all other classes
    all-vs-all    a problem for each pair of classes, trained only on examples of these two

All problems of an architecture have the same shape, so they are trained together: weights are `[K, C, d, p]` for K
problems of C capsules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from pipeline.systems.regression.model.capsules import predict_probabilities

Decision = Literal["multiclass", "one-vs-all", "all-vs-all"]


@dataclass(frozen=True)
class Architecture:
    """The problems, and which capsule represents which class.

    Attributes:
        decision: how the problems' answers are combined.
        capsules: `[K, m]`, the capsule of each class in each problem; -1 if the problem does not include the class.
        sizes: `[K, C]`, the capsules' sizes d.
    """

    decision: Decision
    capsules: Tensor
    sizes: Tensor

    @property
    def classes(self) -> int:
        return self.capsules.shape[1]

    @property
    def size(self) -> int:
        """The size of the largest capsule."""
        return int(self.sizes.max())

    @property
    def used(self) -> Tensor:
        """Mask of the rows of the weights that belong to a capsule, `[K, C, d]`; the other rows are zero."""
        return torch.arange(self.size) < self.sizes.unsqueeze(-1)

    def sum_seen(self, of_classes: Tensor) -> Tensor:
        """Sum of `of_classes [m, ...]` over each problem's classes: `[K, ...]`, or `[1, ...]` if all have all."""
        seen = (self.capsules >= 0).to(of_classes)
        seen = seen if bool((seen == 0).any()) else seen[:1]
        return torch.einsum("km,m...->k...", seen, of_classes)

    def take(self, problems: Tensor) -> Architecture:
        """A subset of the problems."""
        return Architecture(self.decision, self.capsules[problems], self.sizes[problems])


def build_architecture(decision: Decision, sizes: int | Sequence[int], classes: int) -> Architecture:
    """The problems of an architecture for `classes` classes.

    Args:
        sizes: capsule sizes: one for all, or one for each class. In one-vs-all, the capsule of all other classes is as
            large as the largest of theirs.

    Raises:
        ValueError: fewer than two classes, or sizes for another number of them.
    """
    if classes < 2:
        raise ValueError(f"{classes} class{'es' * (classes != 1)}: classification needs two or more")
    each = [sizes] * classes if isinstance(sizes, int) else [int(size) for size in sizes]
    if len(each) != classes or min(each) < 1:
        raise ValueError(f"capsule sizes {each} for {classes} classes: one positive size for each class is needed")
    if decision == "multiclass" or classes == 2:  # with two classes, all three have the same single problem
        return Architecture(decision, torch.arange(classes)[None], torch.tensor([each]))
    if decision == "one-vs-all":
        capsules = torch.ones(classes, classes, dtype=torch.long) - torch.eye(classes, dtype=torch.long)
        others = [max(each[:k] + each[k + 1 :]) for k in range(classes)]
        return Architecture(decision, capsules, torch.tensor([each, others]).T.contiguous())
    pairs = list(combinations(range(classes), 2))
    capsules = torch.full((len(pairs), classes), -1)
    for k, (first, second) in enumerate(pairs):
        capsules[k, first], capsules[k, second] = 0, 1
    return Architecture(decision, capsules, torch.tensor([[each[i], each[j]] for i, j in pairs]))


def class_scores(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """A score for each class, `[n, m]`; rows sum to 1, and the decision is the class with the highest score.

    multiclass: P(y | x). one-vs-all: each class's probability against all others, normalised. all-vs-all: the share of
    the pairs' votes; ties are broken by sums of probabilities, scaled to less than one vote.

    Args:
        W: `[K, C, d, p]`.
        X: `[n, p]`.
    """
    problems = zip(W, architecture.sizes.to(W.device), strict=True)
    answers = torch.stack([predict_probabilities(weights, X, sizes) for weights, sizes in problems])  # (K, n, C)
    if len(answers) == 1:
        return answers[0]
    if architecture.decision == "one-vs-all":
        certainty = answers[..., 0].T
        return certainty / certainty.sum(-1, keepdim=True)
    votes = answers.new_zeros(len(X), architecture.classes)
    support = torch.zeros_like(votes)
    for answer, capsules in zip(answers, architecture.capsules, strict=True):
        pair = torch.stack([(capsules == 0).nonzero()[0, 0], (capsules == 1).nonzero()[0, 0]]).to(X.device)
        first = answer[:, :1] >= answer[:, 1:]
        votes[:, pair] += torch.cat([first, ~first], dim=1).to(votes)
        support[:, pair] += answer
    scores = votes + 0.5 * support / architecture.classes
    return scores / scores.sum(-1, keepdim=True)
