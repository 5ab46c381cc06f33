"""The metrics of training on test images: means over images, whatever the batches."""

from __future__ import annotations

import pytest
import torch

from pipeline.data.datasets import Dataset
from pipeline.probes import features as metrics
from pipeline.probes.features import metrics_on_test_images
from pipeline.systems.generative.model.generative_model import GenerativeModel

CPU = torch.device("cpu")


def test_metrics_are_means_over_all_test_images(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 images in batches of 10, 10 and 5: each counts alike, with its own noise."""
    images = torch.from_numpy(dataset.part("test")[0]).float() / 255
    monkeypatch.setattr(metrics, "BATCH", 10)
    found = metrics_on_test_images(capsules, dataset, 3, CPU).set_index("metric")["value"]
    generator = torch.Generator().manual_seed(3)
    noise = torch.cat([capsules.draw_noise((count,), generator, CPU) for count in (10, 10, 5)])
    _, expected = capsules(images, noise, torch.tensor(1e9))
    of_batches = {"most_children", "objects_in_use", "presence_information"}
    assert set(expected) - set(found.index) == of_batches == capsules.batch_statistics
    for name, value in expected.items():
        if name in capsules.batch_statistics:
            continue
        assert found[name] == pytest.approx(value.item(), rel=1e-4), name
    assert found["bound"] == pytest.approx(
        found["log_pixels"] + found["log_parts"] + found["log_objects"] + found["entropy"], rel=1e-4
    )
