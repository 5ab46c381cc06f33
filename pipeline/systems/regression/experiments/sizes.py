"""Capsules of different sizes by class at the same number of parameters (document 002, section 4, left open there)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.fits import Inputs, errors, fit_architecture, mistakes
from pipeline.systems.regression.settings import SizesStudy


def shared_out(weights: Sequence[float], total: int) -> list[int]:
    """Integers of sum `total` in proportion to `weights`, at least one each, by the largest remainder method."""
    free = total - len(weights)
    share = np.asarray(weights, float)
    share = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
    exact = share * free
    whole = np.floor(exact).astype(int)
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[: free - whole.sum()]] += 1
    return [int(size) + 1 for size in whole]


def run(inputs: Inputs, study: SizesStudy) -> Outcome:
    """Equal capsules, then sizes with the same total in proportion to the equal model's validation errors by class, and
    for comparison in inverse proportion to them.
    """
    total = study.size * inputs.classes
    plans = {"equal": [study.size] * inputs.classes}
    rows, numbers = [], {}
    for name in ("equal", "by error", "against error"):
        architecture = build_architecture("multiclass", plans[name], inputs.classes)
        W = fit_architecture(inputs, architecture, study.schedule).W
        if name == "equal":
            y = inputs.y["validation"]
            wrong = mistakes(architecture, W, inputs.X["validation"], y)
            by_class = [float(wrong[y == c].sum() / (y == c).sum().clamp_min(1)) for c in range(inputs.classes)]
            plans["by error"] = shared_out(by_class, total)
            plans["against error"] = shared_out([1 / max(error, 1e-3) for error in by_class], total)
        found = errors(architecture, W, inputs)
        rows.append({"plan": name, "sizes": " ".join(map(str, plans[name])), **found})
        numbers[name.replace(" ", "_")] = {part: one(value) for part, value in found.items()}
    return Outcome("sizes", pd.DataFrame(rows), {"errors": numbers}, tuple(f"errors.{plan}.test" for plan in numbers))
