"""Which results belong to the parameters as they are now.

A result stays where it is when parameters change, until its stage runs again, and a result whose item was taken out of
the parameters stays for good. Reports show both, marked.
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
    """The hash that the settings of each item have now, by `<stage>/<item>`, of stages that write records.

    Args:
        values: all parameters, as `Graph.settings` takes them.
        hash_of: as the stages hash the settings that they record.
    """
    return {
        f"{stage}/{name}": hash_of(graph.settings(stage, name, values))
        for stage, items in graph.items.items()
        for name, item in items.items()
        if any(out.endswith(f"/results/{stage}/{name}.json") for out in item.outs)
    }


def compare(results: Results, expected: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The results beside what the profile asks for.

    Args:
        expected: hash of the settings by `<stage>/<item>`, for every item of the profile.

    Returns:
        missing: items of the profile that were not executed, in its order.
        others: results with other settings than the profile's (`CHANGED`), in its order, then those of items that it
            does not have (`GONE`).

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    folders = sorted(path.name for path in results.records.glob("*") if path.is_dir())
    stages = unique([*(label.partition("/")[0] for label in expected), *folders])
    found = {
        f"{stage}/{item}": numbers.records[-1].get("params_hash")
        for stage in stages
        for item, numbers in results.executed(stage)
    }
    missing = [label for label in expected if label not in found]
    changed = {label: CHANGED for label, wanted in expected.items() if label in found and found[label] != wanted}
    return missing, changed | {label: GONE for label in found if label not in expected}


def summary(missing: Sequence[str], others: Mapping[str, str]) -> list[str]:
    """What `compare` found in a line for each finding, none where nothing is to be said."""
    groups = {"not executed": list(missing)}
    for words in (CHANGED, GONE):
        groups[words] = [label for label, why in others.items() if why == words]
    return [f"{words}: {', '.join(labels)}" for words, labels in groups.items() if labels]
