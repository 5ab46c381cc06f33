"""Errors and calibration of capsule regression by size and architecture, and of baselines (document 002, Figures 2-5).

Calibration compares predicted probabilities with frequencies. Images are put into bins of equal width by confidence,
which is the probability of the class that an image is assigned to. Bin b has n_b of n images. Their mean confidence is
c_b, and a share a_b of them is assigned correctly. If probabilities are right, a_b is near c_b. The expected
calibration error (Guo, Pleiss, Sun and Weinberger 2017) is

    ECE = sum_b n_b / n |a_b - c_b|

It is positive even if all probabilities are right, because a_b varies around c_b by chance. `ece_by_chance` is its mean
in this case, for independent images and a normally distributed a_b: E |a_b - c_b| = sqrt(2 / pi) sd(a_b).
"""

import math
import time
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from pipeline.data.datasets import PARTS
from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture, coupled_probabilities
from pipeline.systems.regression.model.capsules import prior_means
from pipeline.systems.regression.model.expectation_maximisation import CHUNK
from pipeline.systems.regression.model.fits import Inputs, decisions, fit_architecture
from pipeline.systems.regression.settings import Decision, GridStudy

PLANE, SHOWN = 2, 8
"""Capsule sizes of the multiclass models: `PLANE` in Figures 2-3, `SHOWN` in Figure 4."""
PROBABILISTIC = "logistic-regression"
"""The only baseline whose calibration is measured. Others count trees or neighbours, or give no probabilities."""
BINS = 10

Arrays = dict[str, NDArray[np.generic]]


def run(inputs: Inputs, study: GridStudy) -> Outcome:
    """Fit each architecture in each size, and each baseline. Each has a row: errors, seconds, calibration if measured.

    `apart_smaller` compares the row's model with the next smaller size. `apart_fewer` compares it with the architecture
    that has the next smaller number of capsules. Each is the share of test images that exactly one of the two models
    misclassifies.
    """
    rows: list[dict[str, Any]] = []
    arrays: Arrays = {}
    X, y = inputs.X["test"], inputs.y["test"]
    sizes, wrong = sorted(study.sizes), dict[tuple[str | None, int | None], Tensor]()
    ordered = [decision for decision in get_args(Decision) if decision in study.decisions]
    cells = [(decision, size) for decision in ordered for size in sizes]
    smaller, fewer = ({second: first for first, second in pairwise(each)} for each in (sizes, ordered))
    for decision, size in tqdm(cells, desc="grid", unit="fit"):
        architecture = build_architecture(decision, size, inputs.classes)
        W, fitted = fit_architecture(inputs, architecture, study.schedule)
        row: dict[str, Any] = {"model": decision, "size": size, **fitted, "parameters": W.numel()}
        blocks = [coupled_probabilities(architecture, W.double(), block.double()) for block in X.split(CHUNK)]
        decided = decisions(architecture, W, X)
        wrong[decision, size] = decided != y
        others = {"apart_smaller": (decision, smaller.get(size)), "apart_fewer": (fewer.get(decision), size)}
        for name, other in others.items():
            if other in wrong:
                row[name] = float((wrong[decision, size] != wrong[other]).double().mean())
        rows.append(row | calibration(*(each.cpu().numpy() for each in (torch.cat(blocks), decided, y))))
        if decision == "multiclass" and size == PLANE:
            arrays |= plane(W, inputs)
        if decision == "multiclass" and size == SHOWN:
            arrays |= prototypes(W, inputs)
    rows += [baseline(name, inputs) for name in study.baselines]
    numbers: dict[str, Any] = {"errors": {decision: {} for decision in study.decisions}, "baseline": {}}
    for row in rows:
        names = (*PARTS, "seconds", "test_log_loss", "ece", "ece_by_chance", "apart_smaller", "apart_fewer")
        cell = {name: one(row[name]) for name in names if name in row}
        if row["size"]:
            numbers["errors"][row["model"]][str(row["size"])] = cell
        else:
            numbers["baseline"][row["model"]] = cell
    if "latents" in arrays:
        numbers["rim"] = rim(arrays["latents"], arrays["labels"])
    if "prototypes" in arrays:
        numbers["prototypes"] = one(variety(arrays["prototypes"]))
    largest = [f"errors.{decision}.{max(study.sizes)}" for decision in study.decisions]
    headline = [f"{each}.{name}" for name in ("test", "ece") for each in largest]
    headline += [f"baseline.{name}.test" for name in study.baselines]
    return Outcome("grid", pd.DataFrame(rows), numbers, tuple(headline), arrays)


def calibration(probabilities: NDArray[np.float64], decided: NDArray[np.intp], y: NDArray[np.intp]) -> dict[str, float]:
    """Log loss and calibration errors of the probabilities of n images for m classes, `[n, m]`. The images have the
    classes `y [n]`, and are assigned to the classes `decided [n]`.

    Returns:
        `test_log_loss`, the mean of -log P(y | x) in nats; `ece` and `ece_by_chance`, from 0 to 1.
    """
    rows = np.arange(len(y))
    confidence = probabilities[rows, decided]
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    divisor = np.maximum(count, 1)
    mean, right, variance = (
        np.bincount(bins, weights=values, minlength=BINS) / divisor
        for values in (confidence, decided == y, confidence * (1 - confidence))
    )
    sd = np.sqrt(variance / divisor)
    share = count / len(y)
    # A probability that is 0 in float64 would make the log loss infinite.
    surprise = -np.log(np.maximum(probabilities[rows, y], np.finfo(np.float64).tiny))
    return {
        "test_log_loss": float(surprise.mean()),
        "ece": float((share * np.abs(right - mean)).sum()),
        "ece_by_chance": float((share * math.sqrt(2 / math.pi) * sd).sum()),
    }


def squashed(W: Tensor, X: Tensor) -> Tensor:
    """Equation 29: prior means `[n, m, d]` for weights `W [m, d, p]`. All means of an input together have norm 1."""
    means = prior_means(W, X)
    return means / means.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]


def plane(W: Tensor, inputs: Inputs) -> Arrays:
    """Arrays for Figures 2-3. `latents [n, m, 2]` are `squashed` vectors of the test images, and `labels [n]` are the
    images' classes. `confident [m, S, S]`: for each class, its image with the longest vector in the class's capsule.
    """
    latents, y = squashed(W[0], inputs.X["test"]), inputs.y["test"]
    radius = latents.norm(dim=-1)
    surest = [int(torch.where(y == c, radius[:, c], -1.0).argmax()) for c in range(inputs.classes)]
    return {
        "latents": latents.cpu().numpy().astype(np.float32),
        "labels": y.cpu().numpy(),
        "confident": inputs.images["test"][surest, 0],
    }


def rim(latents: NDArray[np.generic], labels: NDArray[np.generic]) -> dict[str, dict[str, float]]:
    """Mean radii (lengths of squashed vectors): `own` in the capsules of the images' classes, `others` in all other
    capsules. `largest` is the share of capsules whose mean radius is largest for images of their own class.
    """
    radius = np.linalg.norm(latents.astype(np.float64), axis=-1)  # (n, m)
    classes = radius.shape[1]
    own = np.arange(classes) == labels[:, None]
    by_class = np.stack([radius[labels == c].mean(axis=0) for c in range(classes)])  # (class of the image, capsule)
    largest = by_class.argmax(axis=0) == np.arange(classes)
    return {"own": one(radius[own].mean()), "others": one(radius[~own].mean()), "largest": one(largest.mean())}


def prototypes(W: Tensor, inputs: Inputs) -> Arrays:
    """Figure 4, equation 30: for each class and each element of its capsule's squashed vector, the class's training
    image with the largest square of this element, `[m, d, S, S]`.
    """
    latents, y = squashed(W[0], inputs.X["train"]), inputs.y["train"]
    best = [torch.where((y == c)[:, None], latents[:, c].square(), -1.0).argmax(0) for c in range(inputs.classes)]
    return {"prototypes": inputs.images["train"][torch.stack(best).cpu().numpy(), 0]}


def variety(prototypes: NDArray[np.generic]) -> float:
    """Share of distinct images among a class's d prototypes, averaged over all classes of `prototypes [m, d, S, S]`."""
    return float(np.mean([len(np.unique(each.reshape(len(each), -1), axis=0)) / len(each) for each in prototypes]))


def baseline(name: str, inputs: Inputs) -> dict[str, Any]:
    """Fit a scikit-learn classifier, and return its row of the table. Its inputs are those of the capsules, divided by
    the root mean square of the training part. The validation part selects the hyperparameter `chosen`. `seconds` is the
    time of all fits and tests.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    candidates: dict[str, dict[str, Any]] = {
        "logistic-regression": {
            f"C {C:g}": OneVsRestClassifier(LogisticRegression(C=C, max_iter=300)) for C in (0.01, 0.1, 1, 10, 100)
        },
        "nearest-neighbours": {f"k {k}": KNeighborsClassifier(k) for k in (1, 3, 5)},
        "random-forest": {"300 trees": RandomForestClassifier(300, n_jobs=-1, random_state=0)},
        "support-vectors": {f"C {C:g}": SVC(C=C, cache_size=1000) for C in (1.0, 10.0)},
    }
    begun = time.perf_counter()
    X, y = ({part: values.cpu().numpy() for part, values in each.items()} for each in (inputs.X, inputs.y))
    scale = float(np.sqrt((X["train"] ** 2).mean()))
    X = {part: values / scale for part, values in X.items()}
    fitted = {strength: model.fit(X["train"], y["train"]) for strength, model in candidates[name].items()}
    chosen = max(fitted, key=lambda strength: fitted[strength].score(X["validation"], y["validation"]))
    best = fitted[chosen]
    found = {part: 1 - float(best.score(X[part], y[part])) for part in PARTS}
    row = {"model": name, "size": 0, **found, "seconds": time.perf_counter() - begun, "chosen": chosen}
    if name != PROBABILISTIC:
        return row
    probabilities = best.predict_proba(X["test"])
    return row | calibration(probabilities, probabilities.argmax(1), y["test"])
