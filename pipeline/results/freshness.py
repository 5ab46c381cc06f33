"""Compares results with the current parameters.

When parameters change, old results stay until their stage runs again; results of items removed from the parameters stay
until someone deletes them. Reports show both kinds with a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.results.reading import Results, unique

if TYPE_CHECKING:
    from pipeline.dependencies import Graph

CHANGED = "made with other settings than the profile's now"
GONE = "no longer in the profile"


def expected_hashes(graph: Graph, values: Mapping[str, Any], hash_of: Callable[[Any], str]) -> dict[str, str]:
    """The hash of each item's current settings, by `<stage>/<item>`, for stages that write records.

    Args:
        values: all parameters, as for `Graph.settings`.
        hash_of: the function with which stages hash the settings that they record.
    """
    return {
        f"{stage}/{name}": hash_of(graph.settings(stage, name, values))
        for stage, items in graph.items.items()
        for name, item in items.items()
        if any(out.endswith(f"/results/{stage}/{name}.json") for out in item.outs)
    }


def compare(results: Results, expected: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Compare the results with the profile.

    Args:
        expected: hash of the settings by `<stage>/<item>`, for every item of the profile.

    Returns:
        missing: items of the profile that were not executed, in its order.
        others: results with other settings than the profile's (`CHANGED`), in its order, then results of items that are
            not in the profile (`GONE`).

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    folders = sorted(path.name for path in results.records.glob("*") if path.is_dir())
    stages = unique([*(label.partition("/")[0] for label in expected), *folders])
    hashes = {
        f"{stage}/{item}": numbers.records[-1].get("params_hash")
        for stage in stages
        for item, numbers in results.executed(stage)
    }
    missing = [label for label in expected if label not in hashes]
    changed = {label: CHANGED for label, wanted in expected.items() if label in hashes and hashes[label] != wanted}
    return missing, changed | {label: GONE for label in hashes if label not in expected}


def summary(missing: Sequence[str], others: Mapping[str, str]) -> list[str]:
    """The result of `compare` as text, one line for each kind of difference."""
    groups = {"not executed": list(missing)}
    for words in (CHANGED, GONE):
        groups[words] = [label for label, why in others.items() if why == words]
    return [f"{words}: {', '.join(labels)}" for words, labels in groups.items() if labels]
