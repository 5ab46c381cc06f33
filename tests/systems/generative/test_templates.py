"""Planted affine copies are found with their maps; other shapes are not taken for copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import FAILURES
from torch import Tensor

from pipeline.data.datasets import Dataset
from pipeline.layers import poses
from pipeline.systems.generative.evaluation import templates
from pipeline.systems.generative.evaluation.templates import (
    CANVAS,
    CONTROLS,
    best_correlation,
    copies,
    correlation,
    drawn,
    placed,
    strokes,
    template_copies,
)
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams

SIZE = 24
SETTINGS = FAILURES.model_copy(update={"starts": 12, "steps": 60})


def grid() -> tuple[Tensor, Tensor]:
    ticks = (torch.arange(SIZE) * 2 + 1) / SIZE - 1
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    return x, y


def hook() -> Tensor:
    """A shape without any symmetry."""
    x, y = grid()
    stem = torch.exp(-((x / 0.1) ** 2)) * torch.exp(-((y / 0.45) ** 4))
    arm = torch.exp(-(((y + 0.35) / 0.1) ** 2)) * torch.exp(-(((x - 0.2) / 0.25) ** 4))
    return torch.maximum(stem, arm)


def blob() -> Tensor:
    x, y = grid()
    return torch.exp(-((x**2 + y**2) / 0.12))


def two_dots() -> Tensor:
    x, y = grid()
    return torch.exp(-(((x.abs() - 0.5) ** 2 + y**2) / 0.02))


def planted(matrix: Tensor) -> Tensor:
    """The hook moved by `matrix`, in a frame as large as the hook's."""
    whole = placed(hook()[None], matrix[None])[0, 0]
    rim = SIZE * (CANVAS - 1) // 2
    return whole[rim:-rim, rim:-rim]


TURN = poses.rotation(torch.tensor(70.0))
MAPS = {
    "turned": TURN,
    "stretched": torch.tensor([[1.3, 0.3, 0.1], [0.0, 0.7, -0.05]]),
    "mirrored": poses.compose(TURN, torch.tensor([[-1.0, 0, 0], [0, 1, 0]])),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_planted_affine_copy_is_recovered(name: str) -> None:
    """The hook has no symmetry, so no other map makes it as similar."""
    assert best_correlation(planted(MAPS[name])[None], hook()[None], starts=12, steps=60) > 0.99


def test_a_map_stretches_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob becomes a thin line only by a map that stretches it more."""
    x, y = grid()
    thin = torch.exp(-((x / 0.06) ** 2) - (y / 0.8) ** 4)
    assert best_correlation(thin[None], blob()[None], starts=6, steps=40) < 0.9
    monkeypatch.setattr(templates, "MOST_STRETCH", 8.0)
    assert best_correlation(thin[None], blob()[None], starts=6, steps=40) > 0.95


def test_shares_count_pairs_and_pictures_that_have_a_copy() -> None:
    """Two hooks are copies of each other; the dots are nobody's."""
    share = copies(torch.stack([hook(), two_dots(), planted(MAPS["mirrored"])]), SETTINGS)
    assert share == {"pairs": pytest.approx(1 / 3), "copied": pytest.approx(2 / 3)}
    assert copies(hook()[None], SETTINGS) == {"pairs": 0.0, "copied": 0.0}


def test_the_correlation_is_numpys_correlation_over_both_frames() -> None:
    first, second = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    theirs = np.corrcoef(first.flatten().numpy(), second.flatten().numpy())[0, 1]
    assert correlation(placed(first), placed(second)).item() == pytest.approx(theirs, abs=1e-4)
    # Moved by half a frame, three columns of each face black outside the other.
    aside = torch.tensor([[[1.0, 0, 1], [0, 1, 0]]])
    black = np.zeros((6, 3))
    pair = np.hstack([first[0].numpy(), black]), np.hstack([black, second[0].numpy()])
    theirs = np.corrcoef(*(each.ravel() for each in pair))[0, 1]
    assert correlation(placed(first), placed(second, aside)).item() == pytest.approx(theirs, abs=1e-4)


def test_strokes_are_windows_around_ink() -> None:
    images = np.zeros((5, 1, 20, 20), np.uint8)
    for index in range(5):
        images[index, 0, 2 + 3 * index, 17 - 2 * index] = 255
    windows = strokes(images, 4, 5, 0.25, seed=1)  # a quarter of the side: pixel for pixel
    assert windows.shape == (4, 5, 5)
    np.testing.assert_allclose(windows[:, 2, 2], 1, atol=1e-5)
    np.testing.assert_allclose(windows.sum((1, 2)), 1, atol=1e-4)


def test_templates_not_in_use_are_left_out_and_the_rest_compared(capsules: GenerativeModel, dataset: Dataset) -> None:
    with torch.no_grad():
        capsules.template_weights += 0.1
        capsules.template_weights[1, 1] = -1.0  # transparent
    used = drawn(capsules, dataset.images)
    torch.testing.assert_close(used, capsules.templates.prod(1)[[0, 2, 3]])
    numbers = template_copies(capsules, dataset.images, SETTINGS)
    assert numbers["drawn"] == 3
    assert copies(used, SETTINGS).items() <= numbers.items()
    assert {"faded_strokes_pairs", "faded_strokes_copied", "faded_strokes_pairs_sd"} < set(numbers)
    with torch.no_grad():  # of a single part that is ever present there is no pair to count
        capsules.part_head[2].bias[:, 0] = torch.tensor([50.0, -50.0, -50.0, -50.0])
    assert copies(drawn(capsules, dataset.images), FAILURES) == {"pairs": 0, "copied": 0}


def test_copies_are_counted_in_sets_of_strokes_that_fade_as_the_mean_template_does(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[Tensor]()

    def counted(pictures: Tensor, failures: FailureParams) -> dict[str, float]:
        compared.append(pictures)
        return {"pairs": float(len(compared)), "copied": 0.0}

    monkeypatch.setattr(templates, "copies", counted)
    with torch.no_grad():
        capsules.template_weights += 0.1
    numbers = template_copies(capsules, dataset.images, SETTINGS)
    *controls, used = compared
    mean, params = used.mean(0), capsules.params
    for draw, windows in enumerate(controls):
        cut = strokes(dataset.images, len(used), params.template_size, params.template_scale, SETTINGS.seed + draw)
        torch.testing.assert_close(windows, cut * mean / mean.max())
    assert len(controls) == CONTROLS
    assert numbers["faded_strokes_pairs_sd"] == pytest.approx(np.std(np.arange(CONTROLS), ddof=1))
