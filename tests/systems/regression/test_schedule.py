"""The schedule against a loop written from section 3.1, problem by problem."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from planted import planted
from torch import Tensor

from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import State, fit
from pipeline.systems.regression.settings import ScheduleParams

SHORT = ScheduleParams(momentum=0.9, thresholds=[0.8, 0.3, 0.0], patience=[5, 3, 2], most_iterations=100_000)
DOUBLE = torch.float64


def problems_of(decision: Any, classes: int = 4) -> tuple[Problems, Any]:
    X, y = planted(160, 5, classes, noise=0.6, seed=2)
    problems = Problems(X[:120], y[:120], build_architecture(decision, 2, classes), dtype=DOUBLE)
    return problems, problems.sort(X[120:], y[120:])


def naive(problems: Problems, k: int, W: Tensor, validation: Any, momentum: float) -> tuple[Tensor, int, int]:
    """One problem by itself, written plainly: best weights, their errors, and iterations."""
    which = torch.tensor([k])

    def held(W: Tensor) -> tuple[int, float]:
        found = problems.passed(W, which, None, validation)
        return int(found.errors[0]), -float(found.log_likelihood[0])

    best, (fewest, loss), taken = W, held(W), 0
    for threshold, patience in zip(SHORT.thresholds, SHORT.patience, strict=True):
        W = previous = best
        waited = 0
        while waited < patience:
            moments = problems.passed(W, which, W.new_tensor([threshold]), problems.examples).moments
            W, previous = problems.update(moments, which) + momentum * (W - previous), W
            taken += 1
            errors, surprise = held(W)
            waited = 0 if errors < fewest else waited + 1
            if (errors, surprise) < (fewest, loss):
                best, fewest, loss = W, errors, surprise
    return best, fewest, taken


@pytest.mark.parametrize("decision", ["multiclass", "one-vs-all", "all-vs-all"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_problems_fit_together_are_fit_as_each_alone(decision: Any, momentum: float) -> None:
    problems, validation = problems_of(decision)
    W = problems.subspace_start()
    state, history = fit(problems, W, validation, SHORT.model_copy(update={"momentum": momentum}))
    for k in range(len(W)):
        best, fewest, taken = naive(problems, k, W[k : k + 1], validation, momentum)
        torch.testing.assert_close(state.best[k : k + 1], best, rtol=1e-8, atol=1e-10)
        rows = history[history["problem"] == k]
        assert int(state.iterations[k]) == taken
        assert rows["iteration"].tolist() == list(range(1, taken + 1))
        assert rows["threshold"].drop_duplicates().tolist() == pytest.approx([0.8, 0.3, 0.0])
        assert int(state.fewest[k]) == fewest


def test_the_history_is_of_the_weights_before_and_after() -> None:
    problems, validation = problems_of("all-vs-all")
    W = problems.subspace_start()
    which = torch.arange(len(W))
    _, history = fit(problems, W, validation, SHORT)
    first = history[history["iteration"] == 1].sort_values("problem")
    before = problems.passed(W, which, None, problems.examples)
    examples = 60  # of two classes
    expected = (-before.log_likelihood / (examples * torch.tensor(2.0).log())).tolist()
    assert first["log_loss"].tolist() == pytest.approx(expected, rel=1e-6)
    assert first["error"].tolist() == pytest.approx((before.errors / examples).tolist())


def test_a_fit_goes_on_from_a_state_and_ends_where_it_must() -> None:
    problems, validation = problems_of("one-vs-all")
    W = problems.subspace_start()
    states: list[State] = []
    whole, _ = fit(problems, W, validation, SHORT, look=lambda state: states.append(deepcopy(state)))
    assert len(states) > 1
    again, _ = fit(problems, W, validation, SHORT, state=states[0])
    assert torch.equal(again.best, whole.best)
    assert torch.equal(again.iterations, whole.iterations)
    three, history = fit(problems, W, validation, SHORT.model_copy(update={"most_iterations": 3}))
    assert three.iterations.tolist() == [3] * 4
    assert len(history) == 12
