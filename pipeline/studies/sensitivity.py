"""What a hyperparameter does to a model trained with it (document 000, appendix B).

Bounds are not compared: the sds of pixels and poses and the temperature are part of the density that a bound bounds, so
bounds at different values measure different things. Probes and the pixel error do not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch

from pipeline.data.datasets import Dataset
from pipeline.models import Model
from pipeline.params import EvaluateParams
from pipeline.studies.bounds import bound_metrics
from pipeline.studies.generalisation import rotation_probes

COMPARED = ("t0", "t0_A0")
"""The features that are probed."""


def ordered_values(values: Sequence[float], own: float) -> list[float]:
    """What is trained: each value once, then the run's own.

    That one comes last because all hyperparameters share it: where another one's study has trained it, its checkpoint
    is found, and belongs to that study's tracked run.
    """
    return [*dict.fromkeys(value for value in values if value != own), own]


def outcome(model: Model, dataset: Dataset, evaluate: EvaluateParams, device: torch.device) -> pd.DataFrame:
    """Columns metric, measured: accuracies of the probes on clean images by their features, and pixel_error."""
    probes = rotation_probes(model, dataset, 0.0, evaluate, device)
    rows = [
        (str(features), float(accuracy))
        for features, accuracy in zip(probes["features"], probes["accuracy"], strict=True)
        if features in COMPARED
    ]
    metrics = bound_metrics(model, dataset, evaluate.seed, device).set_index("metric")["value"]
    return pd.DataFrame([*rows, ("pixel_error", float(metrics["pixel_error"]))], columns=["metric", "measured"])
