"""What is measured of a run that is trained with some settings changed, and how it is told by condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.probes.generalisation import rotation_probes
from pipeline.probes.metrics import metrics_on_test_images
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest


def measures(
    model: Model, dataset: Dataset, probed: Sequence[str], evaluate: EvaluateParams, device: torch.device
) -> dict[str, float]:
    """Accuracies of probes on clean images by the features `probed`, and pixel_error, on test images."""
    sampled = any(name.endswith("_sampled") for name in probed)
    probes = rotation_probes(model, dataset, 0.0, evaluate, device, sampled=sampled).set_index("features")["accuracy"]
    metrics = metrics_on_test_images(model, dataset, evaluate.seed, device).set_index("metric")["value"]
    return {name: float(probes[name]) for name in probed} | {"pixel_error": float(metrics["pixel_error"])}


def outcome(
    study: str,
    kind: str,
    measured: Mapping[str, Sequence[Mapping[str, float]]],
    headline: tuple[str, ...],
    **numbers: Any,
) -> Outcome:
    """What was measured in every condition.

    Args:
        kind: what a condition is called: a column of the table, and the first of the names of numbers.
        measured: by condition, the metrics of each replica.
        headline: the metrics among the headline numbers.
        numbers: further ones.
    """
    rows = [
        (replica, metric, value, condition)
        for condition, replicas in measured.items()
        for replica, metrics in enumerate(replicas)
        for metric, value in metrics.items()
    ]
    table = pd.DataFrame(rows, columns=["replica", "metric", "measured", kind])
    names = [f"{kind}.{condition}.{metric}" for condition in measured for metric in headline]
    values = nest(table, [kind, "metric"], "measured")
    return Outcome(study, table, {**numbers, kind: values}, tuple(names[:MOST_HEADLINES]))
