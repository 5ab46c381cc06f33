"""`python -m benchmarks`: its rows, and that later measurements take the place of earlier ones."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import matrix_capsules
from benchmarks.free_form import race, subject
from benchmarks.generative import densities, fully_coupled, operations, paper_run
from benchmarks.renderer import by_operator, largest_made, render_plainly
from benchmarks.rows import Mark, Row, allowance, duration, merge, rate, table
from pipeline import kernels
from pipeline.data.datasets import Dataset, save_dataset
from pipeline.errors import UserError
from pipeline.layers import compiled_rendering, poses
from pipeline.layers.attention import MultiheadAttentionBlock
from pipeline.layers.rendering import render
from pipeline.learning.runs import save_run
from pipeline.learning.train import Trained
from pipeline.params import load_params
from pipeline.profiles import Profiles
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


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text('{"a": 1}')
    with pytest.raises(UserError, match="does not hold rows"):
        merge(path, [rate("a", 1.0, "x")], "CPU", "", "")
    assert path.read_text() == '{"a": 1}'


def test_the_table_says_what_limits_and_references_are() -> None:
    text = table([Row("a", 2.0, "ms", 1.0, 0.5, 4.0, 2.0, "the least", "theirs", "how")])
    assert "50.0%" in text
    assert "2.00 x" in text
    for words in ("the least", "theirs", "how"):
        assert words in text


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


def test_the_renderer_makes_nothing_larger_than_the_warps_and_its_kernel_than_the_pictures() -> None:
    leaves, warps, pictures = parts(4), 4 * 3 * 2 * 9 * 9 * 4, 4 * 9 * 9 * 4

    def forward_and_backward() -> None:
        torch.autograd.grad(render(*leaves, 9).sum(), leaves)

    with kernels.switched_off():
        assert largest_made(forward_and_backward)[0] == warps
    if compiled_rendering.unsupported(*leaves) is None:
        assert largest_made(forward_and_backward)[0] == pictures


@pytest.mark.parametrize("backward", [False, True])
def test_a_planted_larger_tensor_is_seen(backward: bool) -> None:
    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, picture: Tensor) -> Tensor:
            return picture.clone() if backward else picture.repeat(50, 1, 1)[: len(picture)].clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return gradient.repeat(50, 1, 1)[: len(gradient)].clone() if backward else gradient

    leaves = parts(2)

    def work() -> None:
        torch.autograd.grad(Planted.apply(render(*leaves, 9)).sum(), leaves)

    assert largest_made(work) == (50 * 2 * 9 * 9 * 4, "repeat")


def test_a_view_is_nothing_made() -> None:
    small = torch.rand(8)
    assert largest_made(lambda: small.expand(1000, 8).unflatten(1, (2, 4)))[0] == 0


def test_the_time_is_shared_out_over_operators() -> None:
    text = by_operator(lambda: torch.rand(200, 200) @ torch.rand(200, 200), torch.device("cpu"))
    shares = [float(each.split()[1]) for each in text.split(", ")]
    assert "mm" in text
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 105


def test_operations_are_those_of_pytorch_whether_or_not_kernels_do_them() -> None:
    block = MultiheadAttentionBlock(16, 2)
    x, y = torch.rand(3, 5, 16), torch.rand(3, 7, 16)
    products = 2 * 3 * (5 * 16 * 16 * 2 + 7 * 32 * 16 + 2 * 5 * 7 * 16)
    assert operations(lambda: block(x, y)) == products


def test_the_bound_timed_alone_encodes_and_draws_nothing() -> None:
    run = paper_run()
    small = run.model_copy(update={"model": run.model.model_copy(update={"objects": 2, "parts": 3})})
    step = fully_coupled(small, torch.device("cpu"), 2)
    for work in densities(step):
        with FlopCounterMode(display=False) as counter:
            work()
        assert set(counter.flop_counts["Global"]) == {torch.ops.aten.bmm}  # votes: neither layers nor convolutions


def climb_of(*points: tuple[int, float, float, float]) -> pd.DataFrame:
    """A curve of (round, evaluations, seconds, bound)."""
    return pd.DataFrame(points, columns=["round", "evaluations", "seconds", "bound"])


ADAM = climb_of((0, 0, 0, 0.0), (500, 500, 30, 90.0), (1000, 1000, 60, 100.0))


def test_a_race_ends_where_the_bound_is_first_reached() -> None:
    newton = climb_of((0, 0, 0, 0.0), (10, 11, 2, 99.9), (15, 16, 3, 100.5), (30, 25, 5, 103.0))
    *_, work, time = race(ADAM, newton, "here")
    assert (work.value, work.reference, work.ratio) == (16, 1000, 62.5)
    assert (time.value, time.reference, time.ratio) == (3, 60, 20)
    assert work.note == "round 15 is the first of those measured to reach 100.0 nats; here"


def test_a_bound_that_is_not_reached_is_said_and_has_no_ratio() -> None:
    newton = climb_of((0, 0, 0, 0.0), (30, 25, 5, 97.5))
    *_, work, time = race(ADAM, newton, "here")
    assert (work.value, work.reference, work.ratio) == (25, None, None)
    assert (time.value, time.reference, time.ratio) == (5, None, None)
    assert "not reached: 2.5 nats short" in work.note


def test_an_encoder_that_starts_above_the_bound_does_not_reach_it_in_no_time() -> None:
    newton = climb_of((0, 0, 0, 101.0), (1, 2, 0.5, 102.0))
    assert race(ADAM, newton, "here")[-2].value == 2


def test_free_form_inference_is_timed_on_a_trained_run_where_there_is_one(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    assert "untrained" in subject(cpu, 2, tmp_path).what
    shutil.copy(Profiles(ROOT).params_path("quick"), tmp_path)
    run = load_params(tmp_path / "params.yaml").runs["capsules-digits"]
    images = np.random.default_rng(0).integers(0, 256, (6, 1, 8, 8)).astype(np.uint8)
    split = {part: np.arange(6)[index::3] for index, part in enumerate(("train", "validation", "test"))}
    save_dataset(
        tmp_path / "data" / "processed" / "digits.npz",
        Dataset("digits", "some digits", images, np.zeros(6, np.int64), {}, split),
    )
    models = [build_model(run, 8) for _ in run.seeds]
    trained = Trained([dict(model.named_parameters()) for model in models], pd.DataFrame(), [1] * run.replicas, 0.0)
    save_run(tmp_path / "models" / "capsules-digits", "capsules-digits", run, 8, "", "", trained)
    found = subject(cpu, 3, tmp_path)
    assert found.what == "the first seed of capsules-digits on some digits"
    torch.testing.assert_close(found.images, torch.from_numpy(images[[2, 5, 1]]).float() / 255)


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
    step = rows["generative: training step"]
    assert 0 < step["share_of_limit"] < 1
    assert step["ratio"] > 0
    assert 0 < rows["scae: training step"]["share_of_limit"] < 1
    assert rows["scae: training step, one CPU thread"]["ratio"] > 0
    for iterations in (0, 3):
        assert rows[f"capsnet: training step, {iterations} iterations"]["share_of_limit"] > 0
        assert rows[f"capsnet: training step, {iterations} iterations, one CPU thread"]["ratio"] > 0
    for iterations in (2, 3):
        row = rows[f"matrix capsules: training step, {iterations} iterations, one CPU thread"]
        assert 0 < row["share_of_limit"] < 1
        assert row["ratio"] > 1  # public code is an order of magnitude slower
    assert 0 < rows["capsnet: a step of iterative inference"]["share_of_limit"] <= 1.5
    for name in ("rendering", "encoder", "bound"):
        assert 0 < rows[f"generative: share of {name}"]["value"] < 100
    for name in ("renderer: forward and backward", "encoder: arithmetic", "machine: copy rate", "bound alone"):
        assert any(name in each for each in rows)
    assert 0 < rows["renderer: forward and backward"]["share_of_limit"] < 1
    assert rows["renderer: forward and backward"]["ratio"] > 0
    assert 0 < rows["renderer: largest tensor made"]["value"] <= 1
    assert rows["generative: training step, compiled kernels"]["ratio"] > 0
    for engine in ("Adam, sampled", "L-BFGS", "Gauss-Newton"):
        assert rows[f"free-form: {engine}"]["value"] > 0
    assert "images at once" in rows["free-form: Gauss-Newton to Adam's bound, evaluations"]["note"]
