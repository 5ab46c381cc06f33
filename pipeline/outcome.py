"""What a study hands over: tables, numbers and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Outcome:
    """What a study found.

    Attributes:
        table: tidy measurements, for a CSV file.
        numbers: nested numbers by name, for a JSON file.
        arrays: what figures are drawn from.
    """

    table: pd.DataFrame
    numbers: dict[str, Any]
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)


def one(value: float) -> dict[str, float]:
    """A number without replicas, as results hold numbers."""
    return {"mean": float(value), "sd": 0.0, "n": 1}
