"""Means, standard deviations and tables of numbers measured on several replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def spread(values: Iterable[float]) -> dict[str, float]:
    """Mean, sample standard deviation (0 for one value) and number of values, as a dict with keys mean, sd and n."""
    array = np.asarray(list(values), dtype=np.float64)
    sd = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return {"mean": float(array.mean()), "sd": sd, "n": len(array)}


def spread_each(replicas: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """For each name, the `spread` of the numbers that replicas have under it. All replicas have the same names."""
    return {name: spread(numbers[name] for numbers in replicas) for name in replicas[0]}


def stack_replicas(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the tables of the replicas, with a first column `replica` that numbers them from 0."""
    return pd.concat([table.assign(replica=index) for index, table in enumerate(tables)], ignore_index=True).pipe(
        lambda whole: whole[["replica", *(name for name in whole.columns if name != "replica")]]
    )


def nest(table: pd.DataFrame, keys: Sequence[str], value: str) -> dict[str, Any]:
    """Group rows with equal `keys`. Returns each group's `spread` of the column `value`, in dicts nested by `keys`."""
    nested: dict[str, Any] = {}
    for key, column in table.groupby(list(keys), sort=False)[value]:
        level = nested
        for part in key[:-1]:
            level = level.setdefault(str(part), {})
        level[str(key[-1])] = spread(column)
    return nested


def flat(numbers: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Flatten nested results for tracking. Returns means and plain numbers by dotted name, without other values."""
    named: dict[str, float] = {}
    for key, value in numbers.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            named |= {name: value["mean"]} if value.keys() == {"mean", "sd", "n"} else flat(value, name)
        elif isinstance(value, int | float):
            named[name] = float(value)
    return named
