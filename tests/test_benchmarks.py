"""`python -m benchmarks`: its rows, and that later measurements take the place of earlier ones."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import merge
from benchmarks.faults.__main__ import ADVISED, DIFFERING, SURVIVED, Case, report
from benchmarks.models import Where, matrix_step, operations_of_routing, render_plainly, vote_numbers
from benchmarks.timing import Other, Row, Timed, measure
from pipeline.layers import poses
from pipeline.layers.rendering import render
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

ROOT = Path(__file__).parents[1]
ASKED = {"name", "value", "unit", "limit", "share_of_limit", "reference", "ratio"}


def test_a_row_has_its_share_of_the_least_possible_and_its_ratio_to_the_reference() -> None:
    least, theirs = Other(lambda: time.sleep(0.01), "least", 2), Other(0.4, "theirs")
    row = measure("a", Timed(lambda: time.sleep(0.2), "ms/image", 2, least, theirs), torch.device("cpu"), 0.0)
    assert row.value > 100  # half of 0.2 s
    assert row.share_of_limit is not None
    assert row.limit == pytest.approx(row.value * row.share_of_limit)
    assert 0 < row.share_of_limit < 1  # 0.1, but on a busy machine
    assert row.reference == pytest.approx(200)
    assert row.ratio == pytest.approx(200 / row.value)
    assert (row.limit_is, row.reference_is) == ("least", "theirs")


def test_merging_replaces_rows_of_the_same_name_and_device_only(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    merge(path, [Row("a", 1.0, "s"), Row("b", 2.0, "s")], "CPU", "this one", "abc")
    merge(path, [Row("a", 3.0, "s")], "GPU", "that one", "abc")
    merge(path, [Row("a", 5.0, "s"), Row("c", 6.0, "s")], "CPU", "this one", "def")
    rows = json.loads(path.read_text())
    assert [(row["name"], row["device"], row["value"]) for row in rows] == [
        ("a", "CPU", 5.0), ("b", "CPU", 2.0), ("a", "GPU", 3.0), ("c", "CPU", 6.0),
    ]  # fmt: skip
    assert rows[0]["commit"] == "def"


def test_the_renderer_written_plainly_draws_the_same_pictures_with_the_same_gradients() -> None:
    """Three templates of 5x5 pixels, their poses and presences in each of four images."""
    A = poses.spread(3, 0.5) + torch.randn(4, 3, 6) * 0.1
    leaves = [each.requires_grad_() for each in (torch.rand(3, 2, 5, 5), A, torch.rand(4, 3))]
    ours, plain = render(*leaves, 9), render_plainly(*leaves, 9)
    torch.testing.assert_close(ours, plain)
    upstream = torch.rand_like(ours)
    found, expected = (torch.autograd.grad(drawn, leaves, upstream) for drawn in (ours, plain))
    torch.testing.assert_close(found, expected)


def test_operations_of_routing_by_hand() -> None:
    """68,000 parameters: 9 x 8 children of 36 x 16 capsules, 9 x 16 of 16 x 16, and 256 of five classes.

    A number of a vote of 4x4 poses takes 4 multiply-adds. One iteration: 5 for the mean, 6 for moments, 6 for the
    gradient by their weights, and for its own gradient 5, 2, and 8 for pose and transformation.
    """
    model = matrix_step(2, Where(torch.device("cpu"), Path(), quick=True)).model
    assert isinstance(model, MatrixCapsules)
    assert vote_numbers(model) == 16 * (36 * 9 * 8 * 16 + 16 * 9 * 16 * 16 + 16 * 16 * 5)
    assert operations_of_routing(1, 1, 4) == 2 * (5 + 6 + 6 + 5 + 2 + 8)
    # Another iteration: moments, log densities, the gradients of both, and two more numbers of each.
    assert operations_of_routing(10, 3, 4) - operations_of_routing(10, 2, 4) == 10 * 2 * (4 * 6 + 4)


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
    assert {name.split(":")[0] for name in rows} >= {"machine", "generative", "renderer", "capsnet", "pipeline"}
    for iterations in (2, 3):
        row = rows[f"matrix capsules: training step, {iterations} iterations, one CPU thread"]
        assert row["ratio"] > 1  # public code is an order of magnitude slower


def test_faults_are_counted_by_kind_and_in_sum() -> None:
    outcomes = [("kill", SURVIVED), ("kill", DIFFERING), ("cut", ADVISED)]
    counts = report([Case(number, kind, "", how) for number, (kind, how) in enumerate(outcomes)], {}, 0, "abc")
    assert [counts[each] for each in ("tried", "survived", "with_advice", "differing", "lost")] == [3, 2, 1, 1, 0]
    assert counts["by_kind"]["kill"] == {"tried": 2, SURVIVED: 1, ADVISED: 0, DIFFERING: 1, "lost": 0}
    assert [case["number"] for case in counts["failures"]] == [1]
