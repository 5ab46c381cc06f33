"""Reads and merges provenance records. Each result has one, which says how it was made."""

from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]
"""A provenance record that a stage wrote, with the keys stage, item, dataset, commit, device, seeds and others."""


def unique(values: Iterable[Any]) -> list[Any]:
    """`values` without None and duplicates, in order of first appearance."""
    return list(dict.fromkeys(value for value in values if value is not None))


def item_name(record: Record) -> str:
    """The name `<stage>/<item>` of the item in a record, or just the stage if the record has no item."""
    stage, item = str(record.get("stage", "?")), record.get("item")
    return f"{stage}/{item}" if item else stage


def dataset_label(records: Iterable[Record]) -> str:
    """The labels of data sets in `records`, without duplicates, joined by commas."""
    return ", ".join(unique(each.get("dataset") for each in records))


def _commit(record: Record) -> str | None:
    commit = record.get("commit")
    return f"{commit}-dirty" if commit not in (None, "unknown") and record.get("dirty") else commit


def merged_provenance(records: Iterable[Record]) -> dict[str, Any]:
    """One provenance for a number that is based on several results. A record that occurs twice counts once.

    Returns:
        A dictionary. `commit`, `params_hash`, `device`: the distinct values, joined by commas. A commit ends with
        "-dirty" if there were uncommitted changes. `seconds` is the sum, `epochs` the maximum. `items` and
        `tracking_runs` are lists. A value that no record has is None or an empty list.
    """
    records = {(each.get("stage"), each.get("item"), each.get("tracking_run")): each for each in records}.values()
    commits = unique(_commit(each) for each in records)
    seconds, epochs = ([each[key] for each in records if each.get(key) is not None] for key in ("seconds", "epochs"))
    return {
        "commit": ", ".join(commits) or None,
        "params_hash": ", ".join(unique(each.get("params_hash") for each in records)) or None,
        "device": ", ".join(unique(each.get("device") for each in records)) or None,
        "seconds": sum(seconds) if seconds else None,
        "epochs": max(epochs) if epochs else None,
        "items": unique(item_name(each) for each in records),
        "tracking_runs": unique(each.get("tracking_run") for each in records),
    }
