"""What is asked of trained matrix capsules: test errors, and where votes for classes go (document 004, section 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pipeline.classification import errors
from pipeline.classification.classifier import Classifier
from pipeline.classification.errors import scores, seen
from pipeline.learning.evaluation import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.learning.settings import CropParams
from pipeline.results.outcome import Outcome
from pipeline.results.spread import spread
from pipeline.systems.matrix_capsules.evaluation import vote_distances
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

VOTED = 500
"""Test images whose votes are looked at (the first ones)."""


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Test errors of all replicas; where the votes for classes go; and pictures of that."""
    outcome = errors.evaluate(inputs)
    models, augmentation = of_kind(MatrixCapsules, inputs.models), inputs.run.augmentation
    assert isinstance(augmentation, CropParams)  # params.yaml was checked
    images, labels = inputs.dataset.part("test")
    images, labels = images[:VOTED], labels[:VOTED]
    pixels = seen(images, augmentation)
    found = [vote_distances.distances(model, pixels) for model in models]
    rows = [vote_distances.concentration(*each, labels) for each in found]
    votes = {
        name: {str(t + 1): spread(row[name][t] for row in rows) for t in range(len(rows[0][name]))} for name in rows[0]
    }
    chosen = _examples(models[0], pixels, labels)
    arrays: dict[str, NDArray[Any]] = vote_distances.histograms(*found[0], chosen)
    arrays |= {"images": images[chosen], "labels": labels[chosen]}
    arrays["scores"] = scores(models[0], pixels[chosen]).cpu().numpy()
    numbers = {**outcome.numbers, "voted_images": len(images), "votes": votes}
    return replace(outcome, numbers=numbers, arrays=arrays)


def _examples(model: Classifier, pixels: Tensor, labels: NDArray[np.int64], right: int = 2) -> list[int]:
    """The first images of different classes that are recognised, and the first that is not."""
    chosen: list[int] = []
    correct = scores(model, pixels).argmax(-1).cpu().numpy() == labels
    for place in np.flatnonzero(correct):
        if len(chosen) < right and labels[place] not in labels[chosen]:
            chosen.append(int(place))
    return chosen + np.flatnonzero(~correct)[:1].tolist()
