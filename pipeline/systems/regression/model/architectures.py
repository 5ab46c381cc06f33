"""How capsule regression decides between many classes: one problem of all classes, or many of two (document 002, 3.4).

    multiclass    one problem, a capsule for each class
    one-vs-all    a problem for each class: its capsule against one for all other classes
    all-vs-all    a problem for each pair of classes, which sees examples of these two only

Many problems of two capsules have one shape, so that they are trained together: weights are `[K, C, d, p]` for K
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
    """Problems, and which capsule stands for which class.

    Attributes:
        decision: how the problems' answers are made one.
        capsules: `[K, m]`, the capsule of each class in each problem; -1 where the problem does not see the class.
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
        """The largest capsule's."""
        return int(self.sizes.max())

    @property
    def used(self) -> Tensor:
        """Which rows of the weights stand for numbers of a capsule, `[K, C, d]`; the others are zero."""
        return torch.arange(self.size) < self.sizes.unsqueeze(-1)

    def sum_seen(self, of_classes: Tensor) -> Tensor:
        """Sum of something of each class `[m, ...]` over those a problem sees: `[K, ...]`; `[1, ...]` if all do."""
        seen = (self.capsules >= 0).to(of_classes)
        seen = seen if bool((seen == 0).any()) else seen[:1]
        return torch.einsum("km,m...->k...", seen, of_classes)

    def take(self, problems: Tensor) -> Architecture:
        """Some of the problems."""
        return Architecture(self.decision, self.capsules[problems], self.sizes[problems])


def build_architecture(decision: Decision, sizes: int | Sequence[int], classes: int) -> Architecture:
    """The problems that tell `classes` classes apart.

    Args:
        sizes: of the capsules: one for all, or one for each class. The capsule of all other classes in one-vs-all is as
            large as the largest of theirs.

    Raises:
        ValueError: fewer than two classes, or sizes for another number of them.
    """
    if classes < 2:
        raise ValueError(f"{classes} class{'es' * (classes != 1)}: classification needs two or more")
    each = [sizes] * classes if isinstance(sizes, int) else [int(size) for size in sizes]
    if len(each) != classes or min(each) < 1:
        raise ValueError(f"capsule sizes {each} for {classes} classes: one positive size for each class is needed")
    if decision == "multiclass" or classes == 2:  # of two classes, all three are one problem
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
    """How much speaks for each class, `[n, m]`; rows sum to 1, and the most of it is the decision.

    multiclass: P(y | x). one-vs-all: each class's probability against all others, over their sum. all-vs-all: the share
    of the pairs' votes, which sums of probabilities, scaled to less than a vote, decide where votes are equal.

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
