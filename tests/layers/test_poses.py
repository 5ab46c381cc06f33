"""Poses against plain linear algebra with homogeneous 3x3 matrices."""

import numpy as np
import pytest
import torch

from pipeline.layers import poses

RANDOM = np.random.default_rng(0)


def homogeneous(matrix: torch.Tensor) -> np.ndarray:
    """A pose matrix `[..., 2, 3]` with the row 0 0 1 below it."""
    array = matrix.numpy()
    last = np.broadcast_to([0.0, 0.0, 1.0], (*array.shape[:-2], 1, 3))
    return np.concatenate([array, last], axis=-2)


def some_matrices(*shape: int) -> torch.Tensor:
    """Pose matrices `[*shape, 2, 3]` away from singular ones."""
    offsets = torch.from_numpy(RANDOM.normal(0, 0.3, (*shape, 6)))
    return poses.to_matrix(offsets)


def test_compose_and_invert_are_those_of_homogeneous_matrices() -> None:
    outer, inner = some_matrices(4, 5), some_matrices(4, 5)
    np.testing.assert_allclose(homogeneous(poses.compose(outer, inner)), homogeneous(outer) @ homogeneous(inner))
    mirrored = outer * torch.tensor([[-1.0], [1.0]])  # negative determinants too
    for each in (outer, mirrored):
        np.testing.assert_allclose(homogeneous(poses.invert(each)), np.linalg.inv(homogeneous(each)), rtol=1e-9)


@pytest.mark.parametrize("linear", [[0.0, 0, 0, 0], [1.0, 1, 1, 1], [1e-9, 0, 0, 1], [1.0, 0, 0, -1e-30]])
def test_a_frame_seen_edge_on_stays_finite_and_so_does_its_gradient(linear: list[float]) -> None:
    matrix = torch.cat([torch.tensor(linear).view(2, 2), torch.tensor([[0.5], [-0.5]])], dim=-1).requires_grad_()
    inverse = poses.invert(matrix)
    inverse.sum().backward()
    assert inverse.isfinite().all()
    assert matrix.grad is not None
    assert matrix.grad.isfinite().all()
    assert inverse.abs().max() <= 2 / 1e-3


@pytest.mark.parametrize(("degrees", "right_goes_to"), [(90, (0.0, -1.0)), (30, (0.75**0.5, -0.5))])
def test_rotation_turns_counter_clockwise_as_seen(degrees: float, right_goes_to: tuple[float, float]) -> None:
    """y points down, so that up is -y: a quarter turn takes what lies to the right to the top."""
    turn = poses.rotation(torch.tensor(float(degrees), dtype=torch.float64))
    moved = homogeneous(turn) @ np.array([1.0, 0.0, 1.0])
    np.testing.assert_allclose(moved[:2], right_goes_to, atol=1e-12)


def test_offsets_round_trip_and_zero_is_the_identity() -> None:
    offsets = torch.from_numpy(RANDOM.normal(size=(3, 4, 6)))
    torch.testing.assert_close(poses.to_offset(poses.to_matrix(offsets)), offsets)
    assert poses.to_matrix(torch.zeros(6)).tolist() == [[1, 0, 0], [0, 1, 0]]
    # Row by row: the third number moves to the right, the sixth down.
    moved = homogeneous(poses.to_matrix(torch.tensor([0, 0, 0.25, 0, 0, -0.5]))) @ np.array([0.0, 0.0, 1.0])
    assert moved[:2] == pytest.approx([0.25, -0.5])


@pytest.mark.parametrize("count", [1, 2, 5, 16, 24])
def test_spread_covers_the_image_with_upright_frames(count: int) -> None:
    matrices = poses.to_matrix(poses.spread(count, 0.43))
    linear, centres = matrices[..., :2], matrices[..., 2]
    torch.testing.assert_close(linear, 0.43 * torch.eye(2).expand(count, 2, 2))
    assert len({tuple(centre) for centre in centres.tolist()}) == count, "no two frames in one place"
    assert centres.abs().max() <= 0.5 + 1e-6
    torch.testing.assert_close(centres.mean(0), torch.zeros(2), atol=0.17, rtol=0)
    if count >= 4:
        for axis in (0, 1):
            assert centres[:, axis].aminmax() == (pytest.approx(-0.5), pytest.approx(0.5))
