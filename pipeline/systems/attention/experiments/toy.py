"""The toy network of document 001's appendix B: three inputs x, three hidden units h, one output of target t.

Input and output are clamped. Inference starts at the forward pass, h = x, and minimises an energy by gradient descent
on h. The document's text implies one energy, and its published figure implies another. Here are both readings:

    two-sided   1/2 |x - h|^2 + 1/2 (t - sum h)^2 + penalty      all squared prediction errors, as in the text
    output      (t - sum h)^2 + penalty                          gives the published figure

The penalty is 0 (none), w |h|_1 (L1), or, for L2, w |h|^2 in output and w/2 |h|^2 in two-sided. The document's penalty
has no weight, which means w = 1. With two-sided and L1, the active units at the minimum have h = x + e - w sign h,
where e = t - sum h. Exactly one unit is active if 5/3 <= w < 7. This excludes w = 1. With output and L1, every h >= 0
with sum h = t - w/2 is a minimum, so the result depends on where inference starts.
"""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.probes.sparsity import effective_number, hoyer
from pipeline.results.outcome import Outcome, one
from pipeline.systems.attention.settings import ToyStudy

INPUT, TARGET = (-1.0, 5.0, 2.0), 2.0


def infer(reading: str, penalty: str, weight: float, rate: float, steps: int) -> NDArray[np.float64]:
    """Hidden activities `[3]` after inference by gradient steps. With L1, proximal steps give exact zeros."""
    x = h = np.array(INPUT)
    half = 0.5 if reading == "two-sided" else 1.0
    for _ in range(steps):
        gradient = np.full(3, -2 * half * (TARGET - h.sum()))
        if reading == "two-sided":
            gradient += h - x
        if penalty == "L2":
            gradient += 2 * half * weight * h
        h = h - rate * gradient
        if penalty == "L1":
            h = np.sign(h) * np.maximum(np.abs(h) - rate * weight, 0.0)
    return h


def least_weight(rate: float, steps: int) -> float | None:
    """The least weight of L1 at which a single unit is active (reading two-sided), or None if none is found up to 10.
    Bisection finds the weight, because units become inactive (exactly 0) one after another as the weight rises.
    """

    def active(weight: float) -> int:
        return int(np.count_nonzero(infer("two-sided", "L1", weight, rate, steps)))

    low, high = 0.0, 10.0  # all units are inactive from weight 7 on
    for _ in range(22):  # the interval shrinks to 2.4e-6
        middle = (low + high) / 2
        low, high = (low, middle) if active(middle) <= 1 else (middle, high)
    return high if active(high) == 1 else None


def run(study: ToyStudy) -> Outcome:
    """The table has one row for each reading, weight and penalty, with the activities h1, h2 and h3 after inference,
    their Hoyer index and their effective number (`pipeline.probes.sparsity`). The number `single_winner_from` is the
    result of `least_weight`. It is left out if it is None.
    """
    rows = []
    end: dict[str, Any] = {}
    for reading, weight, penalty in product(("output", "two-sided"), study.weights, ("none", "L1", "L2")):
        h = infer(reading, penalty, weight, study.rate, study.steps)
        units = {f"h{i + 1}": float(value) for i, value in enumerate(h)}
        units |= {"hoyer": float(hoyer(h)), "effective_number": float(effective_number(h))}
        rows.append({"reading": reading, "weight": weight, "penalty": penalty, **units})
        at = end.setdefault(reading, {}).setdefault(f"{weight:g}", {})
        at[penalty] = {name: one(value) for name, value in units.items()}
    headline = tuple(
        f"end.{reading}.{weight}.L1.effective_number" for reading, weights in end.items() for weight in weights
    )
    numbers: dict[str, Any] = {"end": end}
    single = least_weight(study.rate, study.steps)
    if single is not None:
        numbers["single_winner_from"] = single
        headline += ("single_winner_from",)
    return Outcome("toy", pd.DataFrame(rows), numbers, headline)
