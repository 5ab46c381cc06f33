"""Errors by crops and factors: by hand, or on a network so simple that what must come out is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from brightness import Brightness
from small import CROPPED, squares

from pipeline.classification.errors import classification_errors, crop_places, crop_scores

CROP = CROPPED.model_copy(update={"crop": 8})


@pytest.mark.parametrize("free", [7, 16])
def test_thirteen_crops_span_the_image_and_begin_in_the_middle(free: int) -> None:
    places = crop_places(32 + free, 32)
    assert len(set(places)) == len(places) == 13
    assert places[0] == (free // 2, free // 2)
    assert {(0, 0), (0, free), (free, 0), (free, free)} < set(places)
    if free == 16:
        assert {(4, 4), (4, 12), (12, 4), (12, 12), (0, 8), (8, 16)} < set(places)


def test_scores_of_crops_are_those_of_the_images_cut() -> None:
    images = squares().images
    model = Brightness()
    found = crop_scores(model, images, CROP)
    for crop, (row, column) in zip(found, crop_places(12, 8), strict=True):
        cut = torch.from_numpy(images[..., row : row + 8, column : column + 8]).float() / 255
        torch.testing.assert_close(crop, model.scores(cut))


def test_errors_by_crops_and_by_factor_are_counted() -> None:
    dataset = squares()
    model = Brightness()
    table = classification_errors(model, dataset, CROP).set_index("metric")["value"]
    images, labels = dataset.part("test")
    right = (images[..., 2:10, 2:10].mean((1, 2, 3)) > 127.5).astype(int) == labels
    assert table["centre"] == pytest.approx(1 - right.mean())
    each = crop_scores(model, images, CROP)
    voted = each.softmax(-1).mean(0).argmax(-1).numpy()
    assert table["crops"] == pytest.approx((voted != labels).mean())
    model.scores_are_activations = True  # type: ignore[misc]
    averaged = each.mean(0).argmax(-1).numpy()
    again = classification_errors(model, dataset, CROP).set_index("metric")["value"]
    assert again["crops"] == pytest.approx((averaged != labels).mean())
    azimuths = dataset.factors["azimuth"][dataset.split["test"]]
    for azimuth in np.unique(azimuths):
        assert table[f"azimuth-{azimuth}"] == pytest.approx(1 - right[azimuths == azimuth].mean())
