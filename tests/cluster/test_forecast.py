"""Forecasts against schedules worked out by hand and against Graham's bounds."""

from __future__ import annotations

import random

import pytest

from pipeline.cluster.forecast import OVERHEAD_SECONDS, forecasts, in_words, longest_chain

DIAMOND: dict[str, frozenset[str]] = {
    "data": frozenset(),
    "short": frozenset({"data"}),
    "long": frozenset({"data"}),
    "page": frozenset({"short", "long"}),
}
TAKEN = {"data": 10.0, "short": 20.0, "long": 50.0, "page": 5.0}


def test_a_schedule_worked_out_by_hand() -> None:
    one, two, many = forecasts(DIAMOND, TAKEN, [1, 2, 64])
    assert one.seconds == pytest.approx(85 + 4 * OVERHEAD_SECONDS)
    assert two.seconds == many.seconds == pytest.approx(65 + 3 * OVERHEAD_SECONDS)
    assert one.speedup == one.busy == pytest.approx(1.0)
    assert two.speedup == pytest.approx(one.seconds / two.seconds)
    assert two.busy == pytest.approx(one.seconds / two.seconds / 2)


def test_the_longest_chain() -> None:
    assert longest_chain(DIAMOND, TAKEN) == ["data", "long", "page"]


@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_beats_the_longest_chain_or_the_total_and_none_is_twice_as_long(seed: int) -> None:
    """Graham (1969): any order of work that leaves no worker idle takes at most total / workers + longest chain."""
    chance = random.Random(seed)
    names = [f"stage-{number}" for number in range(30)]
    needs = {
        name: frozenset(chance.sample(names[:place], k=min(place, chance.randint(0, 2))))
        for place, name in enumerate(names)
    }
    seconds = {name: chance.uniform(0, 100) for name in names}
    costs = {name: seconds[name] + OVERHEAD_SECONDS for name in names}
    longest = sum(costs[name] for name in longest_chain(needs, costs))
    total = sum(costs.values())
    for each in forecasts(needs, seconds, [1, 2, 3, 7, 64]):
        assert max(longest, total / each.workers) <= each.seconds + 1e-6
        assert each.seconds <= total / each.workers + longest + 1e-6
        assert 0 < each.busy <= 1 + 1e-9


def test_the_text_says_how_many_stages_were_never_timed() -> None:
    lines = in_words(DIAMOND, {"data": 3600.0, "long": 7200.0}.get, [1, 2])
    assert lines[1].split()[0] == "1"
    assert "data > long" in lines[3]
    assert lines[4].startswith("2 of 4 stages were never timed")
