"""Which problems an architecture has, and how their answers become one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pipeline.systems.regression.model import architectures
from pipeline.systems.regression.model.architectures import build_architecture, class_scores


def test_problems_capsules_and_sizes() -> None:
    whole = build_architecture("multiclass", 2, 3)
    assert (whole.capsules.tolist(), whole.sizes.tolist(), whole.size) == ([[0, 1, 2]], [[2, 2, 2]], 2)
    against = build_architecture("one-vs-all", [1, 4, 2], 3)
    assert against.capsules.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert against.sizes.tolist() == [[1, 4], [4, 2], [2, 4]]
    pairs = build_architecture("all-vs-all", [1, 4, 2], 3)
    assert pairs.capsules.tolist() == [[0, 1, -1], [0, -1, 1], [-1, 0, 1]]
    assert pairs.sizes.tolist() == [[1, 4], [1, 2], [4, 2]]
    assert len(build_architecture("all-vs-all", 1, 10).capsules) == 45
    assert pairs.take(torch.tensor([2])).sizes.tolist() == [[4, 2]]


@pytest.mark.parametrize("decision", ["multiclass", "one-vs-all", "all-vs-all"])
def test_two_classes_are_one_problem(decision: Any) -> None:
    assert build_architecture(decision, 3, 2).capsules.tolist() == [[0, 1]]


@pytest.mark.parametrize(("sizes", "classes"), [(2, 1), ([1, 2], 3), ([1, 0, 2], 3)])
def test_what_is_no_architecture_is_refused(sizes: Any, classes: int) -> None:
    with pytest.raises(ValueError, match="class"):
        build_architecture("multiclass", sizes, classes)


def scores(decision: Any, answers: list[list[list[float]]], monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Scores where the problems answer as told, `[K, n, C]`."""
    told = iter(torch.tensor(answers))
    monkeypatch.setattr(architectures, "predict_probabilities", lambda *_: next(told))
    arc = build_architecture(decision, 1, 3)
    n = len(answers[0])
    return class_scores(arc, torch.zeros(len(answers), len(answers[0][0]), 1, 1), torch.zeros(n, 1))


def test_one_vs_all_takes_the_most_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    found = scores("one-vs-all", [[[0.3, 0.7]], [[0.4, 0.6]], [[0.1, 0.9]]], monkeypatch)
    torch.testing.assert_close(found, torch.tensor([[0.3, 0.4, 0.1]]) / 0.8)


def test_all_vs_all_takes_the_majority_and_breaks_ties_by_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pairs 01, 02, 12. First input: 0 beats both, however narrowly. Second: a circle of 0 > 1 > 2 > 0, 2 the surest.
    found = scores(
        "all-vs-all", [[[0.51, 0.49], [0.6, 0.4]], [[0.51, 0.49], [0.1, 0.9]], [[0.01, 0.99], [0.6, 0.4]]], monkeypatch
    )
    assert found.argmax(1).tolist() == [0, 2]
    torch.testing.assert_close(found.sum(1), torch.ones(2))
    assert (found[0] * 3.5).tolist() == pytest.approx([2 + 1.02 / 6, 0 + 0.5 / 6, 1 + 1.48 / 6], abs=1e-6)
