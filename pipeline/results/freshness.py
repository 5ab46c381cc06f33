"""Compares results with the current parameters.

When parameters change, old results stay until their stage runs again; results of items removed from the parameters stay
until someone deletes them. Reports show both kinds with a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.results.provenance import unique
from pipeline.results.reading import Results
from pipeline.settings import WITHOUT_NEUTRAL, Section

if TYPE_CHECKING:
    from pipeline.dependencies import Graph

CHANGED = "made with other settings than the profile's now"
GONE = "no longer in the profile"
DRAFT = "made from uncommitted changes"


@dataclass(frozen=True)
class Expected:
    """The current settings of an item.

    Attributes:
        settings: all of them, structured as in `params.yaml`.
        required: the same without those that have their neutral value. A result that is older than a setting does not
            have it, and is the same if the setting is neutral.
    """

    settings: Mapping[str, Any]
    required: Mapping[str, Any]

    def agrees(self, recorded: Mapping[str, Any]) -> bool:
        """Whether a result with the settings `recorded` was made with these settings."""
        return _is_part(self.required, recorded) and _is_part(recorded, self.settings)


def _is_part(part: Any, whole: Any) -> bool:
    """Whether `whole` has every value of `part`, at the same place; empty sections are nothing to have."""
    if not isinstance(part, Mapping):
        return bool(part == whole)
    inside: Mapping[str, Any] = whole if isinstance(whole, Mapping) else {}
    return all(
        (key in inside or isinstance(value, Mapping)) and _is_part(value, inside.get(key))
        for key, value in part.items()
    )


def current_settings(graph: Graph, params: Section) -> dict[str, Expected]:
    """`expected_settings` of all parameters."""
    values = params.model_dump(mode="json")
    return expected_settings(graph, values, params.model_dump(mode="json", context=WITHOUT_NEUTRAL))


def expected_settings(graph: Graph, values: Mapping[str, Any], required: Mapping[str, Any]) -> dict[str, Expected]:
    """The current settings of each item that writes a record, by `<stage>/<item>`.

    Args:
        values: all parameters, as for `Graph.settings`.
        required: the same without those that have their neutral value.
    """
    return {
        f"{stage}/{name}": Expected(graph.settings(stage, name, values), graph.settings(stage, name, required))
        for stage, items in graph.items.items()
        for name, item in items.items()
        if any(out.endswith(f"/results/{stage}/{name}.json") for out in item.outs)
    }


def compare(
    results: Results, expected: Mapping[str, Expected], *, publish: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Compare the results with the profile.

    Args:
        expected: the settings by `<stage>/<item>`, for every item of the profile.
        publish: whether results made from uncommitted changes are drafts.

    Returns:
        missing: items of the profile that were not executed, in its order.
        others: results with other settings than the profile's (`CHANGED`), in its order, then other drafts (`DRAFT`),
            then results of items that are not in the profile (`GONE`).

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    folders = sorted(path.name for path in results.records.glob("*") if path.is_dir())
    stages = unique([*(label.partition("/")[0] for label in expected), *folders])
    found = {f"{stage}/{item}": numbers for stage in stages for item, numbers in results.executed(stage)}
    recorded = {label: numbers.records[-1].get("settings", {}) for label, numbers in found.items()}
    missing = [label for label in expected if label not in recorded]
    changed = {
        label: CHANGED for label, now in expected.items() if label in recorded and not now.agrees(recorded[label])
    }
    drafts = {
        label: DRAFT for label in expected if publish and label in found and found[label].draft and label not in changed
    }
    return missing, changed | drafts | {label: GONE for label in recorded if label not in expected}


def summary(missing: Sequence[str], others: Mapping[str, str]) -> list[str]:
    """The result of `compare` as text, one line for each kind of difference."""
    groups = {"not executed": list(missing)}
    for words in (CHANGED, DRAFT, GONE):
        groups[words] = [label for label, why in others.items() if why == words]
    return [f"{words}: {', '.join(labels)}" for words, labels in groups.items() if labels]
