"""What free-form optimisation at test time gains, by rotation (document 000, section 2.4, Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.inference.free_form import Optimised, optimise
from pipeline.models.generative import Capsules, GenerativeModel
from pipeline.params import EvaluateParams, OptimiseParams
from pipeline.studies.examples import Arrays, arrange, reconstruct, turned
from pipeline.studies.features import generative_features
from pipeline.studies.generalisation import clean_probe

EXAMPLE_ANGLES = np.arange(0, 181, 30, dtype=np.float32)


@dataclass(frozen=True)
class Gains:
    """Attributes:
    by_angle: columns angle, bound_before, bound_after, pixel_error_before, pixel_error_after, accuracy_before,
        accuracy_after (t0 probe fit on what the encoder finds in clean training images), images.
    curve: columns angle, step, bound, pixel_error.
    """

    by_angle: pd.DataFrame
    curve: pd.DataFrame


def optimisation_gains(
    model: GenerativeModel, dataset: Dataset, study: OptimiseParams, evaluate: EvaluateParams, device: torch.device
) -> Gains:
    """Optimise the first test images, turned within +-angle for each angle of the study, as one batch each."""
    probe = clean_probe(model, dataset, "t0", evaluate, device)
    images, labels = dataset.part("test")
    images, labels = images[: study.images], labels[: study.images]
    rows, curves = [], []
    for angle in study.angles:
        angles = torch.Generator().manual_seed(study.seed)
        batch = torch.from_numpy(images).to(device)
        pixels = warps.warp(batch, warps.uniform_rotations(len(batch), angle, angles, device))
        found = _optimise(model, pixels, study, device)

        def accuracy(posterior: Capsules) -> float:
            t0 = generative_features(model, posterior)["t0"].detach().cpu().numpy()
            return probe.accuracy(t0, labels)

        rows.append(
            {
                "angle": angle,
                "bound_before": float(found.bound_start.mean()),
                "bound_after": float(found.bound_end.mean()),
                "pixel_error_before": float(found.error_start.mean()),
                "pixel_error_after": float(found.error_end.mean()),
                "accuracy_before": accuracy(found.start),
                "accuracy_after": accuracy(found.end),
                "images": len(images),
            }
        )
        curves.append(found.curve.assign(angle=angle))
    return Gains(pd.DataFrame(rows), pd.concat(curves, ignore_index=True))


def example_gains(
    model: GenerativeModel, dataset: Dataset, study: OptimiseParams, device: torch.device, digit: int = 2
) -> Arrays:
    """One test image of class `digit` (the paper shows a 2) turned in steps, before and after (Figure 3)."""
    images, labels = dataset.part("test")
    pixels = turned(images[int(np.argmax(labels == digit))], EXAMPLE_ANGLES, device)
    found = _optimise(model, pixels, study, device)
    with torch.no_grad():
        tensors = {
            "images": pixels[:, 0],
            "before": reconstruct(model, found.start),
            "after": reconstruct(model, found.end),
            "arrangements_before": arrange(model, found.start),
            "arrangements_after": arrange(model, found.end),
        }
    return {name: value.cpu().numpy().astype(np.float32) for name, value in tensors.items()} | {
        "angles": EXAMPLE_ANGLES
    }


def _optimise(model: GenerativeModel, images: torch.Tensor, study: OptimiseParams, device: torch.device) -> Optimised:
    generator = torch.Generator(device).manual_seed(study.seed)
    return optimise(model, images, study.steps, study.learning_rate, generator)
