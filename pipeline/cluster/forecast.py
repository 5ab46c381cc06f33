"""How long a reproduction would take on other numbers of workers: the head's own order of stages, simulated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.cluster.estimate import Seconds, durations, remaining, tails

OVERHEAD_SECONDS = 1.0
"""What a stage costs besides its own work, about: packing, a process, hashing and recording."""


@dataclass(frozen=True)
class Forecast:
    """A reproduction from nothing on so many workers.

    Attributes:
        seconds: until the last stage has ended.
        speedup: how many times as fast as one worker.
        busy: the share of the workers' time in which they work.
    """

    workers: int
    seconds: float
    speedup: float
    busy: float


def forecasts(
    needs: Mapping[str, Collection[str]], seconds: Mapping[str, float], counts: Sequence[int]
) -> list[Forecast]:
    """One for each number of workers.

    Args:
        needs: the stages, each with those that it needs, which come before it.
        seconds: that each stage takes.
    """
    costs = {name: seconds[name] + OVERHEAD_SECONDS for name in needs}
    total = sum(costs.values())
    found = []
    for workers in counts:
        wall = remaining(needs, costs, {}, workers)
        found.append(Forecast(workers, wall, total / wall if wall else 1.0, total / (wall * workers) if wall else 1.0))
    return found


def longest_chain(needs: Mapping[str, Collection[str]], seconds: Mapping[str, float]) -> list[str]:
    """The stages, one after another, that no number of workers makes faster."""
    after = tails(needs, seconds)
    chain: list[str] = []
    candidates = [name for name in needs if not needs[name]]
    while candidates:
        chain.append(max(candidates, key=lambda name: after[name]))
        candidates = [name for name in needs if chain[-1] in needs[name]]
    return chain


def in_words(needs: Mapping[str, Collection[str]], known: Seconds, counts: Sequence[int]) -> list[str]:
    """The forecasts and the longest chain as lines of text."""
    seconds = durations(list(needs), known)
    unknown = sum(known(name) is None for name in needs)
    lines = [f"{'workers':>8}{'time':>11}{'speed':>8}{'busy':>7}"]
    lines += [
        f"{each.workers:>8}{_time(each.seconds):>11}{each.speedup:>7.1f}x{each.busy:>7.0%}"
        for each in forecasts(needs, seconds, counts)
    ]
    chain = longest_chain(needs, seconds)
    lines.append(f"longest chain, {_time(sum(seconds[name] for name in chain))}: {' > '.join(chain)}")
    if unknown:
        lines.append(f"{unknown} of {len(needs)} stages were never timed: each counts as the median of its kind")
    return lines


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
