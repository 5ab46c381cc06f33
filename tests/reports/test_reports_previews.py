"""Previews of data sets."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import cbook

from pipeline.data.datasets import Dataset
from pipeline.drawing.previews import preview
from pipeline.drawing.style import to_bytes


@pytest.fixture
def toys() -> Dataset:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 30, 3])
    images = random.integers(0, 256, (73, 2, 8, 8), np.uint8)
    order = random.permutation(73)
    split = {"train": order[:60], "validation": order[60:65], "test": order[65:]}
    return Dataset("toys", "toys (stand-in)", images, labels, {}, split, ("cat", "dog"))


def test_every_class_has_a_named_row_of_its_own_training_images(toys: Dataset) -> None:
    axes = preview(toys).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["cat", "dog", "2"]
    assert "toys (stand-in): 60 training images" in axes.get_title(loc="left")
    picture = np.asarray(axes.images[0].get_array())
    images, labels = toys.part("train")
    expected = images[labels == 1][:10, 0] / 255
    for column, image in enumerate(expected):
        cell = picture[10:18, 10 * column : 10 * column + 8, 0]
        np.testing.assert_allclose(cell, image, atol=1e-6)


def test_equal_data_gives_equal_bytes(toys: Dataset) -> None:
    assert to_bytes(preview(toys), "png") == to_bytes(preview(toys), "png")


def test_three_channels_are_colours(toys: Dataset) -> None:
    images = np.random.default_rng(1).integers(0, 256, (73, 3, 8, 8), np.uint8)
    coloured = dataclasses.replace(toys, images=images)
    picture = np.asarray(preview(coloured).axes[0].images[0].get_array())
    chosen, labels = coloured.part("train")
    np.testing.assert_allclose(picture[:8, :8], chosen[labels == 0][0].transpose(1, 2, 0) / 255, atol=1e-6)


def test_names_of_classes_are_drawn_as_they_are(toys: Dataset) -> None:
    """Between dollar signs would be mathematics, and an error where it is none."""
    odd = dataclasses.replace(toys, classes=(r"5$ \or 6$", "<b>&\"'", "$_^{$"))
    figure = preview(odd)
    assert not any(cbook.is_math_text(text.get_text()) for text in figure.axes[0].get_yticklabels())
    ElementTree.fromstring(to_bytes(figure, "svg"))


def test_of_very_many_classes_the_first_are_shown() -> None:
    labels = np.arange(1000)
    split = {"train": labels, "validation": labels[:0], "test": labels[:0]}
    many = Dataset("many", "many", np.zeros((1000, 1, 8, 8), np.uint8), labels, {}, split, tuple(map(str, labels)))
    assert [text.get_text() for text in preview(many).axes[0].get_yticklabels()] == [str(n) for n in range(40)]
