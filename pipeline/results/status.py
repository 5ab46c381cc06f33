"""How far a profile is: which results are recorded, stale, running or missing, and about how long they take.

Stale means made with other settings; `dvc status` finds changes of code. Unlocked: the result is there, but not as
`dvc.lock` has it. Times of missing and stale items are estimates from recorded ones: the time per image and epoch of
trainings of the same variant, or the median time of the same stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

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

FAMILIAR_SHARE = 1 / 3
"""About the share of smallNORB's images whose viewpoints count as familiar."""


@dataclass(frozen=True)
class ItemStatus:
    """One item.

    Attributes:
        label: `<stage>/<item>`.
        hours: that it took, or would take; None if nothing is known.
        estimated: whether these are an estimate.
        commit: that it was made from, shortened; "" if it was not.
    """

    label: str
    state: State
    hours: float | None
    estimated: bool
    commit: str


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
    rates = _Rates(recorded)
    found = []
    for label in dict.fromkeys([*expected, *others]):
        state: State = "missing" if label in missing else reasons[others[label]] if label in others else "recorded"
        if state == "recorded" and locked is not None and label not in locked:
            state = "unlocked"
        numbers = recorded.get(label)
        # What another execution of a stale one would take: the recorded time may be of quite other settings.
        estimated = state in ("missing", "stale")
        hours = rates.estimate(label, expected[label]) if estimated else recorded_hours(numbers) if numbers else None
        state = "running" if label in expected and running(label) else state
        commit = str(numbers.records[-1].get("commit") or "")[:7] if numbers else ""
        found.append(ItemStatus(label, state, hours, estimated, commit))
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


class _Rates:
    """Times of recorded items, and what follows from them for others."""

    def __init__(self, recorded: Mapping[str, Numbers]) -> None:
        self._by_stage: dict[str, list[float]] = {}
        self._per_image: dict[str, list[float]] = {}
        for label, numbers in recorded.items():
            hours = recorded_hours(numbers)
            if hours is None:
                continue
            stage, _, item = label.partition("/")
            self._by_stage.setdefault(stage, []).append(hours)
            settings = numbers.records[-1].get("settings") or {}
            if stage == "train" and item in settings.get("runs", {}):  # older results lack settings
                for variant, images in trained_images(stage, item, settings).items():
                    self._per_image.setdefault(variant, []).append(hours / images)

    def estimate(self, label: str, settings: Mapping[str, Any]) -> float | None:
        """Hours of an item with these settings; None if nothing like it is recorded. Of a study that trains, only the
        training is counted.
        """
        stage, _, item = label.partition("/")
        images = trained_images(stage, item, settings)
        if images:
            known = self._per_image.keys() >= images.keys()
            return sum(median(self._per_image[each]) * count for each, count in images.items()) if known else None
        found = self._by_stage.get(stage)
        return median(found) if found else None


def trained_images(stage: str, item: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """Images that an item trains on, all epochs, seeds and conditions together, by variant; empty if it trains nothing.

    Args:
        settings: of the item, as `Graph.settings`.
    """

    def passes(run: str, epochs: float, trainings: float, dataset: str | None = None) -> dict[str, float]:
        chosen = runs[run]
        images = settings["datasets"][dataset or chosen["dataset"]]["train"]
        return {chosen["variant"]: epochs * trainings * images}

    runs = settings.get("runs", {})
    study = settings[stage].get(item, {}) if stage in settings else {}
    match stage:
        case "train":
            return passes(item, runs[item]["training"]["epochs"], runs[item]["replicas"])
        case "sweep":
            run, sweep = settings["item"]["run"], settings["sweep"]
            return passes(run, runs[run]["training"]["epochs"] * sweep["training_share"], sweep["replicas"])
        case "sensitivity":
            sensitivity = settings["sensitivity"]
            values = len(sensitivity["hyperparameters"][item]) + 1  # the run's own, too
            return passes(sensitivity["run"], sensitivity["epochs"], values * sensitivity["replicas"])
        case "ablation" | "presence_ablation":
            return passes(study["run"], study["epochs"], len(study["conditions"]) * study["replicas"])
        case "recipe":
            trainings = [each.get("training", {}) for each in study["conditions"].values()]
            epochs = sum(training.get("epochs", study["epochs"]) for training in trainings)
            return passes(study["run"], epochs, len(study["held_out"]))
        case "data_efficiency":
            return passes(study["run"], study["epochs"], len(study["shares"]) * study["replicas"])
        case "viewpoint":
            epochs, seeds, dataset = study["epochs"], study["replicas"] * FAMILIAR_SHARE, study["dataset"]
            return passes(study["capsules"], epochs, seeds, dataset) | passes(study["cnn"], epochs, seeds, dataset)
        case "posterior":
            run = study["run"]
            return passes(run, runs[run]["training"]["epochs"] + 2 * study["epochs"], study["replicas"])
        case _:
            return {}


def table(found: list[ItemStatus]) -> list[str]:
    """The items as lines of text, and one line that sums them up by state."""
    width = max((len(each.label) for each in found), default=0)
    lines = [f"{each.label:<{width}}  {each.state:<8}  {_in_words(each):>10}  {each.commit}".rstrip() for each in found]
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
