"""The result of a study, and the function that writes it."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.files import write_arrays, write_text

if TYPE_CHECKING:
    import pandas as pd

MOST_HEADLINES = 12
RECORD = "record"
"""A key in a result's JSON file. Its value has all numbers and their provenance. Other keys lead to headline numbers.
The value is a list because DVC does not compare lists: `dvc metrics diff` then shows only the headline numbers.
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a study.

    Attributes:
        kind: the kind of study, stored with the numbers.
        table: the measurements for the CSV file.
        numbers: nested dictionaries of numbers. A number measured on replicas is `{"mean", "sd", "n"}`.
        headline: dotted keys of about ten of these numbers, which DVC compares.
        arrays: arrays for figures, by name.
    """

    kind: str
    table: "pd.DataFrame"
    numbers: dict[str, Any]
    headline: tuple[str, ...] = ()
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)


def combined(outcomes: Mapping[str, Outcome], datasets: Mapping[str, str | None]) -> Outcome:
    """Combine the outcomes of several studies into one outcome. The keys of `outcomes` are the studies' names.

    Args:
        datasets: label of each study's data set. Keys are the studies' names. Labels are recorded only if they differ.

    Returns:
        An outcome with numbers under the key `studies`, arrays named `<study>/<name>`, and a table with the rows and
        columns of all studies after a column `study`. `pipeline.results.reading` separates the studies again.
    """
    import pandas as pd  # imported here, because all studies import this module, and must load fast

    table = pd.concat([each.table.assign(study=name) for name, each in outcomes.items()], ignore_index=True)
    table.insert(0, "study", table.pop("study"))
    differ = len(set(datasets.values())) > 1
    numbers = {name: each.numbers | ({"dataset": datasets[name]} if differ else {}) for name, each in outcomes.items()}
    return Outcome(
        "set",
        table,
        {"studies": numbers},
        tuple(f"studies.{name}.{dotted}" for name, each in outcomes.items() for dotted in each.headline),
        {f"{name}/{array}": values for name, each in outcomes.items() for array, values in each.arrays.items()},
    )


def one(value: float) -> dict[str, float]:
    """A number without replicas, in the form `{"mean", "sd", "n"}`."""
    return {"mean": float(value), "sd": 0.0, "n": 1}


def _leaves(numbers: object, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield (keys, value) for each value in nested mappings and lists. Positions in lists count as keys."""
    if not isinstance(numbers, Mapping | list | tuple):
        yield keys, numbers
        return
    for key, value in numbers.items() if isinstance(numbers, Mapping) else enumerate(numbers):
        yield from _leaves(value, (*keys, str(key)))


def headlines(numbers: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The numbers that `names` lists, with four significant digits. A number with replicas is replaced by its mean.

    The result is nested like `numbers`. A name is the keys that lead to a number, joined by dots. The keys may contain
    dots themselves. Names without a number are left out.
    """
    found = {".".join(keys).removesuffix(".mean"): (keys, value) for keys, value in _leaves(numbers)}
    nested: dict[str, Any] = {}
    for name in names:
        keys, value = found.get(name, ((), None))
        if isinstance(value, int | float) and not isinstance(value, bool):
            level = nested
            *above, last = keys[:-1] if keys[-1] == "mean" else keys
            for key in above:
                level = level.setdefault(key, {})
            level[last] = float(f"{value:.4g}")  # few enough digits to hide noise between machines
    return nested


def write_outcome(path: Path, arrays: Path | None, outcome: Outcome, provenance: Mapping[str, Any]) -> None:
    """Write the files of an outcome, each atomically. Headline numbers and record go to `path`, a JSON file. The
    table goes to a CSV file beside it, and the arrays go to the folder `arrays` (None for a stage without arrays).

    The record is one line, because its seconds, dates and commits differ whenever a study runs: `git diff` then shows
    this line and the headline numbers that changed. Raises `UserError` if a number is not finite, or if a file cannot
    be written.
    """
    record = {"study": outcome.kind, **outcome.numbers, "provenance": [dict(provenance)]}
    wrong = [
        f"{'.'.join(keys)} = {value}"
        for keys, value in _leaves(outcome.numbers)
        if isinstance(value, float) and not math.isfinite(value)
    ]
    if wrong:
        named = ", ".join(wrong[:5]) + ", ..." * (len(wrong) > 5)
        raise UserError(
            f"{outcome.kind}: not finite: {named}. The training behind it may have diverged: look at its curves in "
            "MLflow, or lower `learning_rate` in params.yaml. Nothing was written."
        )
    shown = json.dumps(headlines(outcome.numbers, outcome.headline) | {RECORD: []}, indent=2, allow_nan=False)
    write_text(path, shown.replace("[]", json.dumps([record], allow_nan=False)) + "\n")
    write_text(path.with_suffix(".csv"), outcome.table.to_csv(index=False, float_format="%.7g"))
    if arrays is not None:
        arrays.mkdir(parents=True, exist_ok=True)  # DVC expects a folder, even an empty one
    if outcome.arrays:
        assert arrays is not None, f"dvc.yaml has no folder for the arrays of {outcome.kind}"
        write_arrays(arrays / "examples.npz", outcome.arrays)
