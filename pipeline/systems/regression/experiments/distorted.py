"""Do more data reduce overfitting of large capsules? A million distorted digits (document 002, section 3.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.experiments import Extras
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.distortions import Strength, distort
from pipeline.systems.regression.model.fits import fit_architecture
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.settings import DistortedStudy

CHUNK = 4096
Bar = Callable[[Iterable[int]], Iterable[int]]


def enlarged(
    inputs: Inputs, images: NDArray[np.uint8], examples: int, strength: Strength, seed: int, bar: Bar = iter
) -> Inputs:
    """The training part followed by distorted copies of its images, `examples` in total.

    All images have the same number of copies, up to one. Copies are projected onto the directions of the original
    images; the other parts are unchanged.

    Args:
        images: the training part's images, uint8 `[n, 1, S, S]`.
    """
    count, features = inputs.X["train"].shape
    total = max(examples, count)
    X = torch.empty(total, features, device=inputs.basis.device)
    X[:count] = inputs.X["train"]
    which = torch.arange(total) % count
    generator = torch.Generator().manual_seed(seed)
    basis = inputs.basis.float()
    for start in bar(range(count, total, CHUNK)):
        rows = which[start : start + CHUNK]
        pictures = torch.from_numpy(images[rows.numpy()]).to(X.device).float() / 255
        X[start : start + len(rows)] = distort(pictures, generator, strength).flatten(1) @ basis
    y = inputs.y["train"][which.to(inputs.y["train"].device)]
    return dataclasses.replace(inputs, X={**inputs.X, "train": X}, y={**inputs.y, "train": y})


def run(inputs: Inputs, study: DistortedStudy, extras: Extras) -> Outcome:
    """Errors of one architecture after training on the original images, and on these with distorted copies.

    Training errors include the distorted copies. Of several strengths of the distortions, the one with the fewest
    validation errors is reported and drawn; the table has all.
    """
    images = extras.images["train"]
    architecture = build_architecture(study.decision, study.size, inputs.classes)
    rows: list[dict[str, Any]] = []

    def bar(starts: Iterable[int]) -> Iterable[int]:
        return extras.bar(starts, "batch")

    for strength in (0.0, *study.strengths):
        data = inputs
        if strength:
            data = enlarged(inputs, images, study.examples, Strength().times(strength), study.seed, bar)
        keep_at = partial(extras.keep_at, distorted=strength)
        fitted = fit_architecture(data, architecture, study.schedule, keep_at=keep_at)
        rows.append(
            {
                "data": "distorted" if strength else "plain",
                "strength": strength,
                "examples": len(data.X["train"]),
                **fitted.errors(data),
                "iterations": fitted.most,
                "seconds": fitted.seconds,
            }
        )
    best = min(rows[1:], key=lambda row: float(row["validation"]))
    numbers = {
        row["data"]: {part: one(row[part]) for part in ("train", "validation", "test")}
        | {key: row[key] for key in ("examples", "strength")}
        for row in (rows[0], best)
    }
    generator = torch.Generator().manual_seed(study.seed)
    copied = torch.from_numpy(images[:20]).float().repeat_interleave(4, 0) / 255
    shown = distort(copied, generator, Strength().times(best["strength"]))
    arrays = {"originals": images[:20, 0], "copies": (shown[:, 0] * 255).round().to(torch.uint8).numpy()}
    headline = tuple(f"{data}.{part}" for data in numbers for part in ("train", "test"))
    return Outcome("distorted", pd.DataFrame(rows), numbers, headline, arrays)
