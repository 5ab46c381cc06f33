"""Warps: their direction, their exactness, and their ranges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import pad

from pipeline.data import warps
from pipeline.layers import poses


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def ndimage_warp(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """One channel `[S, S]` by scipy, which samples with a map between (row, column) pixel centres."""
    size = len(image)
    to_rows = np.array([[0.0, 1.0], [1.0, 0.0]])  # (x, y) to (row, column) and back
    inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))
    linear = to_rows @ inverse[:2, :2] @ to_rows
    centre = np.full(2, (size - 1) / 2)
    offset = to_rows @ inverse[:2, 2] * size / 2 + centre - linear @ centre
    return ndimage.affine_transform(image, linear, offset, order=1, mode="grid-constant", cval=0.0)


@pytest.mark.parametrize("size", [12, 11])
def test_warp_is_scipys_affine_transform(generator: torch.Generator, size: int) -> None:
    images = torch.rand(8, 2, size, size, generator=generator)
    matrices = torch.eye(2, 3) + 0.3 * torch.randn(8, 2, 3, generator=generator)
    found = warps.warp(images, matrices)
    for image, matrix, result in zip(images, matrices, found, strict=True):
        for channel, warped in zip(image, result, strict=True):
            expected = ndimage_warp(channel.double().numpy(), matrix.double().numpy())
            np.testing.assert_allclose(warped.numpy(), expected, atol=2e-5)


def test_whole_pixel_shifts_move_pixels(generator: torch.Generator) -> None:
    """Four to the left and two down."""
    images = torch.rand(3, 2, 12, 12, generator=generator)
    matrices = warps.shifts(torch.tensor([[-4.0, 2.0]] * 3), 12)
    expected = torch.zeros_like(images)
    expected[..., 2:, :-4] = images[..., :-2, 4:]
    torch.testing.assert_close(warps.warp(images, matrices), expected, atol=1e-5, rtol=0)


def test_uniform_rotations_fill_their_range_evenly(generator: torch.Generator) -> None:
    matrices = warps.uniform_rotations(torch.empty(20_000, 1, 1, 1), 90.0, generator)
    angles = torch.rad2deg(torch.atan2(-matrices[:, 1, 0], matrices[:, 0, 0]))
    assert angles.min() >= -90.001
    assert angles.max() <= 90.001
    # Ten bins of 2000 each: their sd is 42; six of them fail by chance less than once in a million runs.
    assert (torch.histc(angles, 10, -90, 90) - 2000).abs().max() < 6 * 42
    torch.testing.assert_close(matrices[:, :, 2], torch.zeros(20_000, 2))


def blobs(generator: torch.Generator, count: int) -> Tensor:
    """Bright rectangles of random size and place, anywhere in the middle 28 x 28 of 40 x 40 pixels."""
    images = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    for image in images:
        top, left = torch.randint(0, 20, (2,), generator=generator).tolist()
        height, width = torch.randint(1, 21, (2,), generator=generator).tolist()
        image[0, top : top + height, left : left + width] = 255
    return pad(images, (6, 6, 6, 6))


def test_affnist_ink_stays_on_the_canvas(generator: torch.Generator) -> None:
    """Drawn on a canvas with a margin around, the same warps leave the margin perfectly black."""
    images, margin = blobs(generator, 400), 10
    matrices = warps.affnist_warps(images, generator)
    in_wide = matrices.clone()
    in_wide[..., 2] *= 40 / (40 + 2 * margin)
    drawn = warps.warp(pad(images, (margin,) * 4), in_wide)
    inside = drawn[..., margin:-margin, margin:-margin]
    assert (drawn.sum(dim=(1, 2, 3)) - inside.sum(dim=(1, 2, 3))).abs().max() < 1e-3
    torch.testing.assert_close(warps.warp(images, matrices), inside, atol=1e-4, rtol=0)


def test_affnist_ranges_are_the_published_ones(generator: torch.Generator) -> None:
    count = 20_000
    images = torch.zeros(count, 1, 40, 40)
    images[..., 16:24, 18:22] = 1
    matrices = warps.affnist_warps(images, generator)
    linear, place = matrices[..., :2], matrices[..., 2]  # the ink's middle is the canvas's before a warp
    assert (place.amin(0) < -0.7).all()
    assert (place.amax(0) > 0.7).all()
    assert place.mean(0).abs().max() < 0.02
    # turn @ [[a, s d], [0, d]]: the first column gives turn and a, then s and d follow.
    angle = torch.rad2deg(torch.atan2(-linear[:, 1, 0], linear[:, 0, 0]))
    upright = poses.rotation(-angle)[..., :2] @ linear
    a, d = upright[:, 0, 0], upright[:, 1, 1]
    shear = upright[:, 0, 1] / d
    for values, low, high in ((angle, -20, 20), (a, 0.8, 1.2), (d, 0.8, 1.2), (shear, -0.2, 0.2)):
        slack = 0.001 * (high - low)
        assert low - slack <= values.min() < low + 10 * slack
        assert high - 10 * slack < values.max() <= high + slack
        assert abs(values.mean() - (low + high) / 2) < 10 * slack
    assert abs(torch.corrcoef(torch.stack([angle, a, d, shear, *place.T])) - torch.eye(6)).max() < 0.05


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")  # of torch: it is a prototype
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_a_gpu_gives_the_same_and_is_never_waited_for(generator: torch.Generator) -> None:
    gpu = torch.device("cuda")
    images = blobs(generator, 16)
    seeded = torch.Generator().manual_seed(1)
    expected_matrices = warps.affnist_warps(images, seeded)
    found_matrices = warps.affnist_warps(images.to(gpu), torch.Generator().manual_seed(1))
    torch.testing.assert_close(found_matrices.cpu(), expected_matrices, atol=1e-5, rtol=0)
    on_gpu, drawing = images.to(gpu), torch.Generator(gpu).manual_seed(1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = warps.warp(on_gpu, found_matrices)
        warps.affnist_warps(on_gpu, drawing)
        warps.uniform_rotations(on_gpu, 90.0, drawing)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(found.cpu(), warps.warp(images, expected_matrices), atol=1e-4, rtol=0)
