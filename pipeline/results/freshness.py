"""Compares results with the current parameters.

When parameters change, old results stay until their stage runs again; results of items removed from the parameters stay
until someone deletes them. Reports show both kinds with a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.results.provenance import unique
from pipeline.results.reading import Results

if TYPE_CHECKING:
    from pipeline.dependencies import Graph
    from pipeline.settings import Section

CHANGED = "made with other settings than the profile's now"
GONE = "no longer in the profile"
DRAFT = "made from uncommitted changes"


def current_settings(graph: Graph, params: Section) -> dict[str, dict[str, Any]]:
    """The current settings of each item that writes a record, by `<stage>/<item>`, structured as in `params.yaml`."""
    return expected_settings(graph, params.model_dump(mode="json"))


def expected_settings(graph: Graph, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """As `current_settings`, given all parameters as for `Graph.settings`."""
    return {
        f"{stage}/{name}": graph.settings(stage, name, values)
        for stage, items in graph.items.items()
        for name, item in items.items()
        if any(out.endswith(f"/results/{stage}/{name}.json") for out in item.outs)
    }


def compare(
    results: Results, expected: Mapping[str, Mapping[str, Any]], *, publish: bool = False
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
    changed = {label: CHANGED for label, now in expected.items() if label in recorded and now != recorded[label]}
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
