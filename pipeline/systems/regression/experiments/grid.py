"""Errors and calibration by capsule size and architecture, images of two models, other classifiers (Figures 2-5)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.calibration import Calibration, calibration, calibration_of
from pipeline.systems.regression.model.capsules import prior_means
from pipeline.systems.regression.model.fits import Fitted, KeepAt, fit_architecture
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.settings import GridStudy

PLANE, SHOWN = 2, 8
"""Capsule sizes of the multiclass models that Figures 2-3 and Figure 4 show."""
PROBABILISTIC = "logistic-regression"
"""The other classifier whose calibration is measured: the others' probabilities are shares of votes or missing."""


def run(inputs: Inputs, study: GridStudy, keep_at: KeepAt | None = None) -> Outcome:
    """Fit every architecture at every size, then the other classifiers.

    The array `reliability [models, bins, 4]` is that of the architectures with the largest capsules in the order of
    `decisions`, then that of `PROBABILISTIC` if it is one of the other classifiers; see `Calibration`.
    """
    rows: list[dict[str, Any]] = []
    reliability: list[NDArray[np.float64]] = []
    arrays: dict[str, NDArray[np.generic]] = {}
    cells = [(decision, size) for decision in study.decisions for size in study.sizes]
    features = inputs.X["train"].shape[1]
    for decision, size in tqdm(cells, desc="grid", unit="fit"):
        architecture = build_architecture(decision, size, inputs.classes)
        fitted = fit_architecture(inputs, architecture, study.schedule, keep_at)
        row = {"model": decision, "size": size, **fitted.errors(inputs), "iterations": fitted.iterations}
        row |= {"parameters": int(architecture.sizes.sum()) * features, "seconds": fitted.seconds}
        calibrated = calibration_of(architecture, fitted.W, inputs.X["test"], inputs.y["test"])
        rows.append(row | _numbers_of(calibrated))
        if size == max(study.sizes):
            reliability.append(calibrated.reliability)
        if decision == "multiclass" and size == PLANE:
            arrays |= plane(fitted, inputs)
        if decision == "multiclass" and size == SHOWN:
            arrays |= prototypes(fitted, inputs)
    for name in study.baselines:
        row, calibrated_baseline = baseline(name, inputs)
        rows.append(row)
        if calibrated_baseline is not None:
            reliability.append(calibrated_baseline.reliability)
    arrays["reliability"] = np.stack(reliability)
    numbers: dict[str, Any] = {}
    for cell in rows:
        measured = ("train", "validation", "test", "seconds", "test_log_loss", "ece", "ece_by_chance")
        found = {name: one(cell[name]) for name in measured if name in cell}
        if cell["size"]:
            models = numbers.setdefault("errors", {})
            models.setdefault(cell["model"], {})[str(cell["size"])] = found
        else:
            numbers.setdefault("baseline", {})[cell["model"]] = found
    if "latents" in arrays:
        numbers["rim"] = rim(arrays["latents"], arrays["labels"])
    if "prototypes" in arrays:
        numbers["prototypes"] = one(variety(arrays["prototypes"]))
    headline = [f"errors.{decision}.{max(study.sizes)}.test" for decision in study.decisions]
    headline += [f"errors.{decision}.{max(study.sizes)}.ece" for decision in study.decisions]
    headline += [f"baseline.{name}.test" for name in study.baselines]
    return Outcome("grid", pd.DataFrame(rows), numbers, tuple(headline), arrays)


def _numbers_of(found: Calibration) -> dict[str, float]:
    return {"test_log_loss": found.log_loss, "ece": found.ece, "ece_by_chance": found.by_chance}


def squashed(W: Tensor, X: Tensor) -> Tensor:
    """Equation 29: each capsule's mean vector divided by the length of all of them together, `[n, m, d]`."""
    means = prior_means(W, X)
    return means / means.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]


def plane(fitted: Fitted, inputs: Inputs) -> dict[str, NDArray[np.generic]]:
    """Figures 2-3: squashed vectors `latents [n, m, 2]` of the test images, their `labels`, and `confident [m, S, S]`,
    the image of each class with the highest probability.
    """
    latents, y = squashed(fitted.W[0], inputs.X["test"]), inputs.y["test"]
    radius = latents.norm(dim=-1)
    surest = [int(torch.where(y == c, radius[:, c], -1.0).argmax()) for c in range(inputs.classes)]
    return {
        "latents": latents.cpu().numpy().astype(np.float32),
        "labels": y.cpu().numpy(),
        "confident": inputs.images["test"][surest, 0],
    }


def rim(latents: NDArray[np.generic], labels: NDArray[np.generic]) -> dict[str, dict[str, float]]:
    """Mean radius in the capsule of the own class, in the others, and the share of capsules where own is largest."""
    radius = np.linalg.norm(latents.astype(np.float64), axis=-1)  # (n, m)
    classes = radius.shape[1]
    own = np.arange(classes) == labels[:, None]
    by_class = np.stack([radius[labels == c].mean(axis=0) for c in range(classes)])  # (class of the image, capsule)
    largest = by_class.argmax(axis=0) == np.arange(classes)
    return {"own": one(radius[own].mean()), "others": one(radius[~own].mean()), "largest": one(largest.mean())}


def prototypes(fitted: Fitted, inputs: Inputs) -> dict[str, NDArray[np.generic]]:
    """Figure 4, equation 30: for each class and element its prototype, a training image: `[m, d, S, S]`."""
    latents, y = squashed(fitted.W[0], inputs.X["train"]), inputs.y["train"]
    best = [torch.where((y == c)[:, None], latents[:, c].square(), -1.0).argmax(0) for c in range(inputs.classes)]
    return {"prototypes": inputs.images["train"][torch.stack(best).cpu().numpy(), 0]}


def variety(prototypes: NDArray[np.generic]) -> float:
    """Share of distinct images among a class's prototypes `[m, d, S, S]`, averaged over classes."""
    return float(np.mean([len(np.unique(each.reshape(len(each), -1), axis=0)) / len(each) for each in prototypes]))


def baseline(name: str, inputs: Inputs) -> tuple[dict[str, Any], Calibration | None]:
    """A scikit-learn classifier on the same inputs; its strength is chosen on the validation part.

    Its seconds include the fits with all strengths, as a user has to run them; `chosen` is the strength. The second
    value is its calibration on the test part, for `PROBABILISTIC` only.
    """
    begun = time.perf_counter()
    X = {part: values.cpu().numpy() for part, values in inputs.X.items()}
    y = {part: values.cpu().numpy() for part, values in inputs.y.items()}
    scale = float(np.sqrt((X["train"] ** 2).mean()))
    X = {part: values / scale for part, values in X.items()}
    best: Any = None
    fewest, chosen = 2.0, ""
    for strength, model in _candidates(name):
        model.fit(X["train"], y["train"])
        error = 1 - model.score(X["validation"], y["validation"])
        if error < fewest:
            best, fewest, chosen = model, error, strength
    errors = {part: 1 - float(best.score(X[part], y[part])) for part in ("train", "validation", "test")}
    row = {"model": name, "size": 0, **errors, "seconds": time.perf_counter() - begun, "chosen": chosen}
    if name != PROBABILISTIC:
        return row, None
    probabilities = best.predict_proba(X["test"])
    found = calibration(probabilities, probabilities.argmax(1), y["test"])
    return row | _numbers_of(found), found


def _candidates(name: str) -> list[tuple[str, Any]]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    match name:
        case "logistic-regression":
            return [(f"C {C:g}", OneVsRestClassifier(LogisticRegression(C=C, max_iter=300))) for C in (0.01, 0.1, 1.0)]
        case "nearest-neighbours":
            return [(f"k {k}", KNeighborsClassifier(k)) for k in (1, 3, 5)]
        case "random-forest":
            return [("300 trees", RandomForestClassifier(300, n_jobs=-1, random_state=0))]
        case "support-vectors":
            return [(f"C {C:g}", SVC(C=C, cache_size=1000)) for C in (1.0, 10.0)]
    raise ValueError(f"no baseline {name}")
