"""What is known of published images before they are there, against what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline.data import building, cifar, norb
from pipeline.data.settings import PUBLISHED, DatasetParams, SourceName
from pipeline.data.sources import SOURCES, fetch


def test_every_source_is_known() -> None:
    assert set(SOURCES) == set(get_args(SourceName))
    assert set(PUBLISHED) == set(building._READERS) == set(SOURCES) - {"affnist"}


@pytest.mark.parametrize("source", ["digits", "toys"])
def test_what_is_known_is_so(source: str, tmp_path: Path) -> None:
    """All images, and not one more; few are rendered."""
    fetch(source, tmp_path / "raw", tmp_path / "partial")
    known = PUBLISHED[source]
    published = building._READERS[source](tmp_path / "raw")
    assert known.images is not None
    assert (published.side, published.test, len(published.classes)) == (known.side, known.test, known.classes)
    assert len(published.labels) == known.images + known.test
    assert published.factors.keys() == set(known.factors or ())
    parts = {"train": 10, "validation": 10, "test": 10}
    settings = {"source": source, "canvas": known.side, "split_seed": 0, **parts}
    images = building.build_dataset("mine", DatasetParams.model_validate(settings), tmp_path / "raw").images
    assert images.shape[1:] == (known.channels, known.side, known.side)


def test_smallnorb_and_cifar10_are_as_published() -> None:
    """Five categories of five instances a part, at 18 azimuths, 9 elevations and 6 lightings."""
    instance = 5 * 18 * 9 * 6
    for name in ("smallnorb", "smallnorb48"):
        known = PUBLISHED[name]
        assert (known.side, known.classes) == (norb.SIZE, len(norb.CATEGORIES))
        assert known.images == instance * len(norb.TRAIN_INSTANCES)
        assert known.test == instance * len(norb.TEST_INSTANCES)
    posed = PUBLISHED["smallnorb48-posed"]
    is_test = np.isin(norb.TEST_INSTANCES, building.POSED_TEST_INSTANCES)
    assert (posed.images, posed.test) == (instance * (~is_test).sum(), instance * is_test.sum())
    ten = PUBLISHED["cifar10"]
    assert (ten.side, ten.classes, ten.test) == (cifar.SIZE, len(cifar.CLASSES), cifar.TEST)
