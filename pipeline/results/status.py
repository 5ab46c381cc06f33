"""How far a profile is: which results are recorded, stale, running or missing, and about how long they take.

Stale means made with other settings; `dvc status` finds changes of code. Unlocked: the result is there, but not as
`dvc.lock` has it. Of missing and stale items, the time is estimated: the median of the same stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from pipeline.profiles import differences
from pipeline.results.freshness import CHANGED, DRAFT, GONE, compare
from pipeline.results.reading import Numbers, Results

State = Literal["recorded", "unlocked", "draft", "stale", "running", "missing", "gone"]
STATES: dict[State, str] = {
    "recorded": "recorded",
    "unlocked": "in the repository, but not in dvc.lock",
    "draft": DRAFT,
    "stale": CHANGED,
    "running": "running now",
    "missing": "not executed",
    "gone": GONE,
}
"""Every state, in words."""
_FEW = 3  # settings shown of a stale item


@dataclass(frozen=True)
class ItemStatus:
    """One item.

    Attributes:
        label: `<stage>/<item>`.
        hours: that it took, or would take; None if nothing is known.
        estimated: whether these are an estimate.
        commit: that it was made from, shortened; "" if it was not.
        changed: why it is stale: each setting with the value that it was made with, and the value now.
    """

    label: str
    state: State
    hours: float | None
    estimated: bool
    commit: str
    changed: tuple[tuple[str, Any, Any], ...] = ()


def statuses(
    results: Results,
    expected: Mapping[str, Mapping[str, Any]],
    *,
    publish: bool = False,
    locked: Collection[str] | None = None,
    running: Callable[[str], bool] = lambda label: False,
) -> list[ItemStatus]:
    """The state of every item of a profile, in its order, then of results that are not in it.

    Args:
        expected: the settings by `<stage>/<item>`, for every item of the profile.
        publish: whether results made from uncommitted changes are drafts.
        locked: the items whose results are as in the profile's `dvc.lock`; None: all.
        running: whether an item's stage runs at the moment.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    missing, others = compare(results, expected, publish=publish)
    recorded = {label: numbers for label in [*expected, *others] if (numbers := _numbers(results, label))}
    reasons: dict[str, State] = {CHANGED: "stale", DRAFT: "draft", GONE: "gone"}
    taken: dict[str, list[float]] = {}  # hours, by stage
    for label, numbers in recorded.items():
        if (hours := recorded_hours(numbers)) is not None:
            taken.setdefault(label.partition("/")[0], []).append(hours)
    found = []
    for label in dict.fromkeys([*expected, *others]):
        state: State = "missing" if label in missing else reasons[others[label]] if label in others else "recorded"
        if state == "recorded" and locked is not None and label not in locked:
            state = "unlocked"
        made = recorded.get(label)
        # What another execution of a stale one would take: the recorded time may be of quite other settings.
        estimated = state in ("missing", "stale")
        alike = taken.get(label.partition("/")[0])
        time = (median(alike) if alike else None) if estimated else recorded_hours(made) if made else None
        state = "running" if label in expected and running(label) else state
        commit = str(made.records[-1].get("commit") or "")[:7] if made else ""
        changed = differences(made.settings, expected[label]) if made and state == "stale" else ()
        found.append(ItemStatus(label, state, time, estimated, commit, tuple(changed)))
    return found


def _numbers(results: Results, label: str) -> Numbers | None:
    stage, _, item = label.partition("/")
    return results.numbers(stage, item)


def recorded_hours(numbers: Numbers) -> float | None:
    """What an item took; None if it is not recorded.

    A training notes its time with all parts of one that was resumed, the stage that of the last part alone.
    """
    known = [
        each for each in (numbers.at("seconds"), numbers.records[-1].get("seconds")) if isinstance(each, int | float)
    ]
    return max(known) / 3600 if known else None


def table(found: list[ItemStatus]) -> list[str]:
    """The items as lines of text, and one line that sums them up by state."""
    width = max((len(each.label) for each in found), default=0)
    lines = []
    for each in found:
        lines.append(f"{each.label:<{width}}  {each.state:<8}  {_in_words(each):>10}  {each.commit}".rstrip())
        lines += [f"    {name}  {before} -> {now}" for name, before, now in each.changed[:_FEW]]
        if len(each.changed) > _FEW:
            lines.append(f"    and {len(each.changed) - _FEW} more settings")
    sums = []
    for state, words in STATES.items():
        chosen = [each for each in found if each.state == state]
        if chosen:
            known = [each.hours for each in chosen if each.hours is not None]
            about = "about " if any(each.estimated for each in chosen) else ""
            parts = [f"{about}{sum(known):.1f} h"] if known else []
            parts += [f"{len(chosen) - len(known)} of unknown duration"] if len(known) < len(chosen) else []
            sums.append(f"{len(chosen)} {words} ({', '.join(parts)})")
    return [*lines, "; ".join(sums)]


def _in_words(each: ItemStatus) -> str:
    if each.hours is None:
        return "? h"
    shown = f"{each.hours:.2f} h" if each.hours >= 0.1 else f"{60 * each.hours:.1f} min"
    return f"{'~' if each.estimated else ''}{shown}"
