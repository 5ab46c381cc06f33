"""Means, standard deviations and tables of numbers measured on several replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def spread(values: Iterable[float]) -> dict[str, float]:
    """`{"mean", "sd", "n"}` of the values. The sample standard deviation, sd, divides by n - 1; it is 0 if n is 1."""
    array = np.asarray(list(values), dtype=np.float64)
    sd = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return {"mean": float(array.mean()), "sd": sd, "n": len(array)}


def spread_each(replicas: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """`spread` of each number over `replicas`, by the number's name. All replicas have the same names."""
    return {name: spread(numbers[name] for numbers in replicas) for name in replicas[0]}


def stack_replicas(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the tables of the replicas, with a first column `replica` that numbers them from 0."""
    return pd.concat([table.assign(replica=index) for index, table in enumerate(tables)], ignore_index=True).pipe(
        lambda whole: whole[["replica", *(name for name in whole.columns if name != "replica")]]
    )


def nest(table: pd.DataFrame, keys: Sequence[str], value: str) -> dict[str, Any]:
    """`spread` of the column `value` in each group of rows with equal `keys`. The result has a level for each key."""
    nested: dict[str, Any] = {}
    for key, column in table.groupby(list(keys), sort=False)[value]:
        level = nested
        for part in key[:-1]:
            level = level.setdefault(str(part), {})
        level[str(key[-1])] = spread(column)
    return nested


def flat(numbers: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Means and plain numbers in nested metrics, by dotted name, for tracking. Values of other types are left out."""
    named: dict[str, float] = {}
    for key, value in numbers.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            named |= {name: value["mean"]} if value.keys() == {"mean", "sd", "n"} else flat(value, name)
        elif isinstance(value, int | float):
            named[name] = float(value)
    return named
