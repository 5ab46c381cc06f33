from __future__ import annotations

import pytest

from pipeline.cluster.estimate import durations, remaining, tails

NEEDS: dict[str, set[str]] = {"a": set(), "b": set(), "c": {"a"}, "d": {"b", "c"}}
SECONDS = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0}


def test_tails_are_the_longest_chains_behind_a_stage() -> None:
    assert tails(NEEDS, SECONDS) == {"a": 4.0, "b": 6.0, "c": 3.0, "d": 1.0}


@pytest.mark.parametrize(("slots", "expected"), [(1, 9.0), (2, 6.0), (9, 6.0)])
def test_what_remains_of_a_plan(slots: int, expected: float) -> None:
    assert remaining(NEEDS, SECONDS, {}, slots) == expected


def test_what_runs_already_takes_only_the_rest() -> None:
    assert remaining(NEEDS, SECONDS, {"b": 4.5, "a": 0.0}, 2) == 4.0
    assert remaining({"d": {"b", "c"}}, SECONDS, {"d": 7.0}, 2) == 0.0


def test_an_unknown_duration_is_that_of_others_of_the_stage() -> None:
    known = {"train@a": 10.0, "train@b": 20.0, "train@c": 90.0, "evaluate@a": 1.0}
    names = [*known, "train@d", "sweep@a"]
    found = durations(names, known.get)
    assert found["train@d"] == 20.0
    assert found["sweep@a"] == 15.0
    assert durations(["a"], {}.get) == {"a": 0.0}
