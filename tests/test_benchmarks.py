"""`python -m benchmarks`: its rows, and that later measurements take the place of earlier ones."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks import matrix_capsules
from benchmarks.renderer import render_plainly
from benchmarks.rows import Mark, allowance, duration, merge, rate
from pipeline.layers import poses
from pipeline.layers.rendering import render
from pipeline.systems import build_model
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

ROOT = Path(__file__).parents[1]
ASKED = {"name", "value", "unit", "limit", "share_of_limit", "reference", "ratio"}


def test_more_is_better_for_rates_and_less_for_durations() -> None:
    fast = rate("a", 50.0, "images/s", Mark(200.0, "most"), Mark(25.0, "theirs"))
    assert (fast.share_of_limit, fast.ratio) == (0.25, 2.0)
    short = duration("b", 20.0, "ms", Mark(5.0, "least"), Mark(60.0, "theirs"))
    assert (short.share_of_limit, short.ratio) == (0.25, 3.0)
    used = allowance("c", 2.0, "%", Mark(5.0, "allowed"))
    assert (used.share_of_limit, used.ratio) == (0.4, None)


def test_merging_replaces_rows_of_the_same_name_and_device_only(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    merge(path, [rate("a", 1.0, "x"), rate("b", 2.0, "x")], "CPU", "this one", "abc")
    merge(path, [rate("a", 3.0, "x")], "GPU", "that one", "abc")
    merge(path, [rate("a", 5.0, "x"), rate("c", 6.0, "x")], "CPU", "this one", "def")
    rows = json.loads(path.read_text())
    assert [(row["name"], row["device"], row["value"]) for row in rows] == [
        ("a", "CPU", 5.0), ("b", "CPU", 2.0), ("a", "GPU", 3.0), ("c", "CPU", 6.0),
    ]  # fmt: skip
    assert rows[0]["commit"] == "def"


def parts(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three templates of 5x5 pixels, their poses and presences in each image."""
    torch.manual_seed(0)
    A = poses.spread(3, 0.5) + torch.randn(batch, 3, 6) * 0.1
    return torch.rand(3, 2, 5, 5).requires_grad_(), A.requires_grad_(), torch.rand(batch, 3).requires_grad_()


def test_the_renderer_written_plainly_draws_the_same_pictures_with_the_same_gradients() -> None:
    leaves = parts(4)
    ours, plain = render(*leaves, 9), render_plainly(*leaves, 9)
    torch.testing.assert_close(ours, plain)
    upstream = torch.rand_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, leaves, upstream), torch.autograd.grad(plain, leaves, upstream), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_traffic_of_votes_by_hand() -> None:
    """68,000 parameters: 9 x 8 children of 36 x 16 capsules, 9 x 16 of 16 x 16, and 256 of five classes."""
    model = build_model(matrix_capsules.small_run(2), 32)
    votes = 16 * (36 * 9 * 8 * 16 + 16 * 9 * 16 * 16 + 16 * 16 * 5)
    assert isinstance(model, MatrixCapsules)
    assert matrix_capsules.vote_numbers(model) == votes
    # One iteration: written, read; again; read for assignments; gradient written and read. Votes and squares, 4 bytes.
    assert matrix_capsules.traffic(1, 1) == 2 * 4 * (2 + 2 + 1 + 2)
    assert matrix_capsules.traffic(10, 2) - matrix_capsules.traffic(10, 1) == 10 * 2 * 4 * (2 + 2 + 2)


def test_operations_of_routing_by_hand() -> None:
    """A number of a vote of 4x4 poses takes 4 multiply-adds. One iteration: 5 for the mean, 6 for moments, 6 for the
    gradient by their weights, and for its own gradient 5, 2, and 8 for pose and transformation.
    """
    assert matrix_capsules.operations(1, 1, 4) == 2 * (5 + 6 + 6 + 5 + 2 + 8)
    # Another iteration: moments, log densities, the gradients of both, and two more numbers of each.
    assert matrix_capsules.operations(10, 3, 4) - matrix_capsules.operations(10, 2, 4) == 10 * 2 * (4 * 6 + 4)


@pytest.mark.slow
def test_the_benchmarks_run_and_write_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--device", "cpu", "--output", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # several threads wait for each other where others run, too
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(path.read_text())}
    for row in rows.values():
        assert row.keys() >= ASKED
        assert math.isfinite(row["value"])
        for share, to in (("share_of_limit", "limit"), ("ratio", "reference")):
            assert (row[share] is None) == (row[to] is None)
            if row[to] is not None:
                assert row[f"{to}_is"], f"{row['name']}: what is its {to}?"
        assert all(row[key] for key in ("unit", "device", "machine", "commit", "measured"))
        assert row["name"] in done.stdout
    for name in ("generative: training step", "renderer: forward and backward", "bound alone", "machine: copy rate"):
        assert any(name in each for each in rows)
    for iterations in (2, 3):
        row = rows[f"matrix capsules: training step, {iterations} iterations, one CPU thread"]
        assert 0 < row["share_of_limit"] < 1
        assert row["ratio"] > 1  # public code is an order of magnitude slower
    assert 0 < rows["renderer: largest tensor made"]["value"] <= 1
