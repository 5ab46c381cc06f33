"""When all stages will have ended, and which to start first, from how long each takes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from statistics import median

Seconds = Callable[[str], float | None]
"""Seconds that a stage takes; None if unknown."""


def durations(names: Collection[str], known: Seconds) -> dict[str, float]:
    """Seconds of every stage. One of unknown duration counts as the median of its items, else of all stages, else 0."""
    found = {name: seconds for name in names if (seconds := known(name)) is not None}
    by_stage: dict[str, list[float]] = {}
    for name, seconds in found.items():
        by_stage.setdefault(name.partition("@")[0], []).append(seconds)
    overall = median(found.values()) if found else 0.0
    return {
        name: found[name] if name in found else median(by_stage.get(name.partition("@")[0], [overall]))
        for name in names
    }


def tails(needs: Mapping[str, Collection[str]], seconds: Mapping[str, float]) -> dict[str, float]:
    """For every stage, the seconds from its start until the longest chain of stages that need it has ended.

    Args:
        needs: the stages that each needs; a stage comes after all that it needs.
    """
    found: dict[str, float] = {}
    after: dict[str, float] = {}  # the longest tail of what needs a stage
    for name in reversed(list(needs)):
        found[name] = seconds[name] + after.get(name, 0.0)
        for need in needs[name]:
            after[need] = max(after.get(need, 0.0), found[name])
    return found


def remaining(
    needs: Mapping[str, Collection[str]],
    seconds: Mapping[str, float],
    running: Mapping[str, float],
    slots: int,
) -> float:
    """Seconds until all have ended if the one with the longest tail always starts first.

    Args:
        needs: the stages that have not ended, each with the stages that it needs (others count as ended).
        seconds: how long each takes.
        running: seconds that each of the running stages has run for.
        slots: workers.
    """
    order = tails(needs, seconds)
    unmet = {name: {need for need in needs[name] if need in needs} for name in needs}
    ends = [(max(0.0, seconds[name] - spent), name) for name, spent in running.items()]
    heapq.heapify(ends)
    ready = [(-order[name], name) for name in needs if not unmet[name] and name not in running]
    heapq.heapify(ready)
    now = 0.0
    while ends or ready:
        while ready and len(ends) < max(slots, 1):
            _, name = heapq.heappop(ready)
            heapq.heappush(ends, (now + seconds[name], name))
        now, ended = heapq.heappop(ends)
        for name, needed in unmet.items():
            if ended in needed:
                needed.remove(ended)
                if not needed:
                    heapq.heappush(ready, (-order[name], name))
    return now
