"""The training metrics, measured on test images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.probes.features import BATCH

_FULLY_TRAINED = 1e9


@torch.no_grad()
def metrics_on_test_images(model: Model, dataset: Dataset, seed: int, device: torch.device) -> pd.DataFrame:
    """Metrics of the model on the test images, with one noise sample per image: columns metric, value.

    Metrics of the whole batch are left out, because batches here differ from those in training.
    """
    images, labels = dataset.part("test")
    generator = torch.Generator(device).manual_seed(seed)
    sums: dict[str, float] = {}
    for start in range(0, len(images), BATCH):
        batch = torch.from_numpy(images[start : start + BATCH]).to(device).float() / 255
        noise = model.draw_noise((len(batch),), generator, device)
        classes = torch.from_numpy(labels[start : start + BATCH]).to(device)
        _, metrics = model(batch, noise, torch.tensor(_FULLY_TRAINED, device=device), classes)
        for name, value in metrics.items():
            if name in model.batch_statistics:
                continue
            sums[name] = sums.get(name, 0.0) + float(value) * len(batch)
    return pd.DataFrame(
        [(name, float(np.float64(total) / len(images))) for name, total in sums.items()], columns=["metric", "value"]
    )
