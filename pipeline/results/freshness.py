"""Finds the state of each item, such as "stale", and how many hours the item takes.

When parameters change, old results stay until their stage runs again. Results of items that were removed from the
parameters stay until someone deletes them. Reports mark both kinds of results.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from pipeline.dependencies import Graph
from pipeline.results.reading import Numbers, Results
from pipeline.settings import differences

State = Literal["recorded", "unlocked", "draft", "outdated", "stale", "running", "missing", "gone"]
STATES: dict[State, str] = {
    "recorded": "recorded",
    "unlocked": "in the repository, but dvc.lock has another hash or none",
    "draft": "made from uncommitted changes",
    "outdated": "made by code that has changed since then",
    "stale": "made with settings other than the profile's present ones",
    "running": "running now",
    "missing": "not executed",
    "gone": "no longer in the profile",
}
"""What each state means, in words."""
_FEW = 3  # the largest number of changed settings or files that are shown for one item


@dataclass(frozen=True)
class ItemStatus:
    """The state of one item. The field `label` names the item, as `<stage>/<item>`.

    Attributes:
        hours: hours that the item took, or would take; None if unknown.
        estimated: whether `hours` is an estimate: the median of the hours that items of this stage took.
        commit: short hash of the commit that the result was made from; "" if unknown.
        changed: for a stale item, (dotted name, value in the result, value now) of each changed setting. For an
            outdated item, (path, hash then, hash now) of each changed file or folder. Empty for other states.
    """

    label: str
    state: State
    hours: float | None
    estimated: bool
    commit: str
    changed: tuple[tuple[str, Any, Any], ...] = ()


def current_settings(graph: Graph, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each item that writes a record. Keys are `<stage>/<item>`. `values` has all parameters."""
    return {
        f"{stage}/{name}": graph.settings(stage, name, values)
        for stage, items in graph.items.items()
        for name, item in items.items()
        if any(out.endswith(f"/results/{stage}/{name}.json") for out in item.outs)
    }


def statuses(
    results: Results,
    expected: Mapping[str, Mapping[str, Any]],
    *,
    publish: bool = False,
    locked: Collection[str] | None = None,
    running: Callable[[str], bool] = lambda label: False,
    changed_code: Mapping[str, Sequence[tuple[str, str, str]]] | None = None,
) -> list[ItemStatus]:
    """The status of each item of a profile, in the profile's order, then of each result whose item is not in it.

    Args:
        expected: the settings of every item of the profile. Keys are labels, `<stage>/<item>`.
        publish: whether results that were made from uncommitted changes count as drafts.
        locked: labels of the items whose result files match their hashes in `dvc.lock`; by default, all items.
        running: a function that says whether the item with a given label is running.
        changed_code: the changed code of items, in the form of `ItemStatus.changed`. Keys are labels of the items.
    """
    folders = sorted(path.name for path in results.records.glob("*") if path.is_dir())
    stages = dict.fromkeys([*(label.partition("/")[0] for label in expected), *folders])
    recorded = {f"{stage}/{item}": numbers for stage in stages for item, numbers in results.executed(stage)}
    known = {label: hours for label, numbers in recorded.items() if (hours := recorded_hours(numbers)) is not None}
    code, found = changed_code or {}, []
    for label in dict.fromkeys([*expected, *recorded]):
        made = recorded.get(label)
        settings = made.records[-1].get("settings", {}) if made else {}
        stale = label in expected and made is not None and settings != expected[label]
        states: dict[State, bool] = {  # the first that applies is the item's state
            "gone": label not in expected,
            "running": running(label),
            "missing": made is None,
            "stale": stale,
            "outdated": label in code,
            "draft": publish and made is not None and made.draft,
            "unlocked": locked is not None and label not in locked,
            "recorded": True,
        }
        state = next(state for state, applies in states.items() if applies)
        time = known.get(label)
        if estimated := made is None or stale:  # a stale item took its recorded time with other settings
            alike = [hours for other, hours in known.items() if other.partition("/")[0] == label.partition("/")[0]]
            time = median(alike) if alike else None
        commit = str(made.records[-1].get("commit") or "")[:7] if made else ""
        changed = code[label] if state == "outdated" else ()
        if state == "stale":
            changed = differences(settings, expected[label])
        found.append(ItemStatus(label, state, time, estimated, commit, tuple(changed)))
    return found


def compare(results: Results, expected: Mapping[str, Mapping[str, Any]], *, publish: bool = False) -> dict[str, str]:
    """The items whose results differ from the profile. Keys are `<stage>/<item>`, values states in words (`STATES`).
    Missing items come first, then stale items, drafts, and items not in the profile. Arguments are as for `statuses`.
    """
    found = statuses(results, expected, publish=publish)
    kinds: tuple[State, ...] = ("missing", "stale", "draft", "gone")
    return {each.label: STATES[kind] for kind in kinds for each in found if each.state == kind}


def by_reason(items: Iterable[str], differing: Mapping[str, str]) -> dict[str, list[str]]:
    """Group `items` by state in words. `differing`, a result of `compare`, has the states. Other items are left out."""
    reasons: dict[str, list[str]] = {}
    for item in items:
        if item in differing:
            reasons.setdefault(differing[item], []).append(item)
    return reasons


def recorded_hours(numbers: Numbers) -> float | None:
    """The hours that an item took, from its result. None if unknown."""
    seconds = numbers.records[-1].get("seconds")
    return None if seconds is None else seconds / 3600


def table(found: list[ItemStatus]) -> list[str]:
    """Lines of text: one on each item, as DVC names it, followed by what changed. The last line has the totals."""
    width = max((len(each.label) for each in found), default=0)
    lines = []
    for each in found:
        name = each.label.replace("/", "@", 1)
        lines.append(f"{name:<{width}}  {each.state:<8}  {_in_words(each):>10}  {each.commit}".rstrip())
        lines += [f"    {setting}  {before} -> {now}" for setting, before, now in each.changed[:_FEW]]
        if len(each.changed) > _FEW:
            lines.append(f"    and {len(each.changed) - _FEW} more")
    sums = []
    for state, words in STATES.items():
        if chosen := [each for each in found if each.state == state]:
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
