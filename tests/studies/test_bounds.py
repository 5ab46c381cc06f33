"""The bound on test images: means over images, whatever the batches."""

import pytest
import torch
from small import SIZE, small_run

from pipeline.data.datasets import Dataset
from pipeline.models import build_model
from pipeline.models.generative import BATCH_STATISTICS, GenerativeModel
from pipeline.studies import bounds
from pipeline.studies.bounds import bound_metrics

CPU = torch.device("cpu")


def test_metrics_are_means_over_all_test_images(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 images in batches of 10, 10 and 5: each counts alike, with its own noise."""
    images = torch.from_numpy(dataset.part("test")[0]).float() / 255
    monkeypatch.setattr(bounds, "BATCH", 10)
    found = bound_metrics(capsules, dataset, 3, CPU).set_index("metric")["value"]
    generator = torch.Generator().manual_seed(3)
    noise = torch.cat([capsules.draw_noise((count,), generator, CPU) for count in (10, 10, 5)])
    _, expected = capsules(images, noise, torch.tensor(1e9))
    for name, value in expected.items():
        if name in BATCH_STATISTICS:
            continue
        assert found[name] == pytest.approx(value.item(), rel=1e-4), name
    assert found["bound"] == pytest.approx(
        found["log_pixels"] + found["log_parts"] + found["log_objects"] + found["entropy"], rel=1e-4
    )


def test_a_seed_gives_the_same_numbers(dataset: Dataset) -> None:
    model = build_model(small_run("vae"), SIZE)
    first, again, other = (bound_metrics(model, dataset, seed, CPU) for seed in (0, 0, 1))
    assert first.equals(again)
    assert not first.equals(other)
    assert first["metric"].tolist() == ["bound", "log_pixels", "log_latent", "entropy", "pixel_error"]
