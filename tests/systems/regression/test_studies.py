"""Studies on small data: what they return, and numbers that can be checked another way."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from planted import planted, step
from pydantic import TypeAdapter
from sklearn.metrics import log_loss

from pipeline.data.datasets import Dataset
from pipeline.learning.checkpoints import Checkpoint
from pipeline.systems.regression.experiments import convergence, distorted, exactness, grid, online, ridge, starts
from pipeline.systems.regression.experiments.distorted import distort
from pipeline.systems.regression.experiments.grid import calibration
from pipeline.systems.regression.model.architectures import build_architecture, coupled_probabilities
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import (
    Inputs,
    build_inputs,
    decisions,
    errors,
    fit_architecture,
    misclassified,
)
from pipeline.systems.regression.settings import RegressionStudy, ScheduleParams

SCHEDULE = {"momentum": 0.9, "thresholds": [0.5, 0.0], "patience": [4, 2], "most_iterations": 50}


def study_of(kind: str, **settings: Any) -> Any:
    study = {"study": kind, "dataset": "planted", "features": 5, **settings}
    return TypeAdapter(RegressionStudy).validate_python(study)


@pytest.fixture
def inputs() -> Inputs:
    X, y = planted(240, 5, 3, noise=0.5)
    X = X.float()
    cut = {"train": slice(0, 120), "validation": slice(120, 180), "test": slice(180, 240)}
    parts = {part: X[rows] for part, rows in cut.items()}
    random = np.random.default_rng(0)
    images = {part: random.integers(0, 256, (len(X), 1, 4, 4), dtype=np.uint8) for part, X in parts.items()}
    basis = torch.from_numpy(np.linalg.qr(random.normal(size=(16, 5)))[0])
    return Inputs(parts, {part: y[rows] for part, rows in cut.items()}, basis, 3, images)


def test_inputs_are_the_leading_singular_directions_of_the_training_images() -> None:
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (30, 1, 6, 6), dtype=np.uint8)
    split = {"train": np.arange(20), "validation": np.arange(20, 25), "test": np.arange(25, 30)}
    data = Dataset("noise", "noise", pixels, np.arange(30) % 3, {}, split, ("a", "b", "c"))
    found = build_inputs(data, 4, torch.device("cpu"))
    train = data.part("train")[0].reshape(20, -1) / 255
    _, values, directions = np.linalg.svd(train, full_matrices=False)
    np.testing.assert_allclose(np.abs(directions[:4] @ found.basis.numpy()), np.eye(4), atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(found.X["train"].numpy(), axis=0), values[:4], rtol=1e-5)
    test = data.part("test")[0].reshape(5, -1) / 255
    np.testing.assert_allclose(found.X["test"].numpy(), test @ found.basis.numpy(), atol=1e-5)
    assert {part: len(y) for part, y in found.y.items()} == {"train": 20, "validation": 5, "test": 5}
    assert build_inputs(data, 1000, torch.device("cpu")).basis.shape == (36, 36)


def test_a_cut_fit_goes_on_where_it_was(inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = ScheduleParams.model_validate(SCHEDULE)
    architecture = build_architecture("one-vs-all", 2, 3)
    W, fitted = fit_architecture(inputs, architecture, schedule)
    kept = replace(inputs, checkpoints=tmp_path, depends={"data": "planted"})

    save = Checkpoint.save

    def save_and_stop(*arguments: Any, **options: Any) -> None:
        save(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        fit_architecture(kept, architecture, schedule)
    monkeypatch.setattr(Checkpoint, "save", save)
    again = fit_architecture(kept, architecture, schedule)
    assert torch.equal(again[0], W)
    assert again[1]["iterations"] == fitted["iterations"]
    assert len(list(tmp_path.glob("*/checkpoint.safetensors"))) == 1


def test_the_grid(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "SHOWN", 3)
    decisions, baselines = ["multiclass", "all-vs-all"], ["logistic-regression", "nearest-neighbours"]
    study = study_of("grid", sizes=[2, 3], decisions=decisions, baselines=baselines, schedule=SCHEDULE)
    found = grid.run(inputs, study)
    assert found.table["parameters"].tolist()[:4] == [30, 45, 60, 90]
    models = [build_architecture(*of, 3) for of in (("all-vs-all", 3), ("multiclass", 3), ("all-vs-all", 2))]
    fits = [(model, fit_architecture(inputs, model, study.schedule)[0]) for model in models]
    pairs, again = fits[0]
    cell, y = found.numbers["errors"]["all-vs-all"]["3"], inputs.y["test"]
    assert cell["test"]["mean"] == pytest.approx(errors(pairs, again, inputs)["test"])
    probabilities = coupled_probabilities(pairs, again.double(), inputs.X["test"].double())
    assert cell["test_log_loss"]["mean"] == pytest.approx(log_loss(y, probabilities))
    wrong = [misclassified(architecture, W, inputs) for architecture, W in fits]
    assert cell["apart_fewer"]["mean"] == pytest.approx(float((wrong[0] != wrong[1]).double().mean()))
    assert cell["apart_smaller"]["mean"] == pytest.approx(float((wrong[0] != wrong[2]).double().mean()))
    assert "apart_fewer" not in found.numbers["errors"]["multiclass"]["3"]
    assert ["ece" in found.numbers["baseline"][name] for name in baselines] == [True, False]
    lengths = np.linalg.norm(found.arrays["latents"], axis=-1)
    np.testing.assert_allclose((lengths**2).sum(axis=1), 1, rtol=1e-5)  # squashed: shares of one
    two = found.numbers["errors"]["multiclass"]["2"]["test"]["mean"]
    assert (lengths.argmax(axis=1) != y.numpy()).mean() == pytest.approx(two)
    W = fit_architecture(inputs, build_architecture("multiclass", 3, 3), study.schedule)[0][0]  # (m, d, p)
    h = torch.einsum("mdp,np->nmd", W, inputs.X["train"])
    shares = h.square() / h.square().sum((1, 2), keepdim=True)
    for c in range(3):
        # A prototype is the training image of the class with the largest square of an element, by equations 29 and 30.
        own = np.flatnonzero(inputs.y["train"] == c)
        best = own[shares[own, c].argmax(0).numpy()]
        np.testing.assert_array_equal(found.arrays["prototypes"][c], inputs.images["train"][best, 0])
        own = np.flatnonzero(y == c)
        best = own[lengths[own, c].argmax()]
        np.testing.assert_array_equal(found.arrays["confident"][c], inputs.images["test"][best, 0])
    assert found.numbers["rim"]["own"]["mean"] > found.numbers["rim"]["others"]["mean"]


def test_rims_and_variety_of_made_up_vectors() -> None:
    latents = np.array([[[1.0, 0], [0, 0]], [[0.6, 0], [0, 0.8]], [[0, 0.6], [0.8, 0]]])
    found = grid.rim(latents, np.array([0, 0, 1]))
    assert found["own"]["mean"] == pytest.approx((1 + 0.6 + 0.8) / 3)
    assert found["others"]["mean"] == pytest.approx((0 + 0.8 + 0.6) / 3)
    assert found["largest"]["mean"] == 1, "own classes' mean radii are .8 and .8, the others' .6 and .4"
    assert grid.rim(latents, np.array([1, 1, 0]))["largest"]["mean"] == 0
    pictures = np.zeros((2, 2, 3, 3), np.uint8)
    pictures[1, 1] = 5
    assert grid.variety(pictures) == pytest.approx((0.5 + 1) / 2)


@pytest.mark.parametrize("name", ["nearest-neighbours", "logistic-regression"])
def test_the_strength_of_another_classifier_is_chosen_on_validation_alone(inputs: Inputs, name: str) -> None:
    row = grid.baseline(name, inputs)
    swapped = {"validation": "test", "test": "validation"}
    X, y = ({part: values[swapped.get(part, part)] for part in values} for values in (inputs.X, inputs.y))
    noise = {"test": inputs.X["test"].flip(0)}
    assert grid.baseline(name, replace(inputs, X=inputs.X | noise))["chosen"] == row["chosen"]
    other = grid.baseline(name, replace(inputs, X=X, y=y))
    assert other["validation"] <= row["test"], "of all strengths, none is better on what chooses"
    assert row["validation"] <= other["test"]


def test_calibration_of_probabilities_that_are_known() -> None:
    # Confidences 0.6, 0.65 (one right), 1.0 (right), and a decision for a class that is not the most probable.
    probabilities = np.array([[0.6, 0.4, 0], [0.65, 0.25, 0.1], [0, 0, 1.0], [0.45, 0.35, 0.2]])
    found = calibration(probabilities, np.array([0, 0, 2, 1]), np.array([0, 1, 2, 1]))
    assert found["test_log_loss"] == pytest.approx(-np.log([0.6, 0.25, 1.0, 0.35]).mean())
    assert found["ece"] == pytest.approx((0.65 + 2 * 0.125) / 4)
    sds = np.sqrt([0.35 * 0.65, (0.6 * 0.4 + 0.65 * 0.35) / 4, 0])
    assert found["ece_by_chance"] == pytest.approx(math.sqrt(2 / math.pi) * (sds @ [1, 2, 1]) / 4)


def test_right_probabilities_have_the_calibration_error_of_chance() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(200):
        probabilities = random.dirichlet(np.ones(3), 500)
        y = (random.random((500, 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(0, 2)
        decided = probabilities.argmax(axis=1)
        found.append(calibration(probabilities, decided, y))
    error, by_chance = (np.mean([each[name] for each in found]) for name in ("ece", "ece_by_chance"))
    assert error == pytest.approx(by_chance, rel=0.05)
    over = probabilities**3 / (probabilities**3).sum(axis=1, keepdims=True)
    assert calibration(over, decided, y)["ece"] > 3 * error


def test_each_variant_of_convergence_is_a_loop_of_its_updates(inputs: Inputs) -> None:
    """W(t+1) = EM_nu(W(t)) + gamma (W(t) - W(t-1)), equation 27; the twelfth row is of the weights after 11 updates."""
    study = study_of("convergence", size=2, iterations=12, momentum=0.4, threshold=0.5)
    result = convergence.run(inputs, study)
    losses = result.table.query("variant == 'plain'")["log_loss"].to_numpy()
    rises = np.diff(losses)
    assert result.numbers["largest_rise"]["mean"] == pytest.approx(rises.max())
    assert rises.max() != pytest.approx(rises.min())
    found = result.numbers["last"]
    X, y = inputs.without_validation()
    problems = Problems(X, y, build_architecture("multiclass", 2, 3), dtype=torch.float64)
    variants = {"plain": (0, 0), "momentum": (0.4, 0), "threshold": (0, 0.5), "both": (0.4, 0.5)}
    for variant, (momentum, threshold) in variants.items():
        W = previous = problems.subspace_start()
        for _ in range(11):
            W, previous = step(problems, W, threshold)[0] + momentum * (W - previous), W
        last = problems.passed(W, torch.arange(1), None, problems.examples)
        log_loss = -float(last.log_likelihood) / len(X) / math.log(3)
        assert found[variant]["log_loss"]["mean"] == pytest.approx(log_loss, rel=1e-6)
        assert found[variant]["train"]["mean"] == pytest.approx(float(last.errors) / len(X))


def test_starts_together_are_starts_alone(inputs: Inputs) -> None:
    settings = {"size": 2, "iterations": 10, "momentum": 0.9, "threshold": 0.5, "seed": 0}
    study = study_of("starts", sds=[0.1, 1.0], seeds=3, **settings)
    found = starts.run(inputs, study)
    assert found.table.groupby("start").size().to_dict() == {"0.1": 3, "1": 3, "subspace": 1}
    assert found.table[found.table["start"] != "subspace"]["error"].unique().size > 1
    assert found.numbers["best_random"]["mean"] == found.table["error"].iloc[:6].min()
    fewer = starts.run(inputs, study.model_copy(update={"sds": [0.1]}))
    assert fewer.table["error"].tolist()[:3] == pytest.approx(found.table["error"].tolist()[:3])


def test_a_start_counts_by_its_lowest_error(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    history = pd.DataFrame({"problem": [0, 0, 0], "error": [0.5, 0.1, 0.3]})
    monkeypatch.setattr(starts, "fit_without_validation", lambda *_: history)
    settings = {"size": 2, "iterations": 3, "momentum": 0.9, "threshold": 0.5, "seed": 0, "sds": [0.1], "seeds": 1}
    found = starts.run(inputs, study_of("starts", **settings)).numbers
    assert found["subspace"]["mean"] == found["best_random"]["mean"] == 0.1


def test_samples_find_the_closed_forms_exact(inputs: Inputs) -> None:
    study = study_of("exactness", size=2, images=4, samples=20_000, seed=0, schedule=SCHEDULE)
    found = exactness.run(inputs, study)
    assert found.numbers["probability"]["count"] == 4 * 3
    assert found.numbers["posterior_mean"]["count"] == 4 * 3 * 2
    for quantity in ("probability", "posterior_mean"):
        assert found.numbers[quantity]["largest"]["mean"] < 4.5
        assert 0.3 < found.numbers[quantity]["mean_square"]["mean"] < 2


def test_online_methods_by_passes(inputs: Inputs) -> None:
    found = online.run(
        inputs, study_of("online", size=2, batches=4, passes=12, momentum=0.5, pass_momentum=0.3, rate=0.7, seed=0)
    )
    losses = found.table.pivot_table(index="passes", columns="method", values="log_loss")
    assert losses.shape == (12, 5)
    assert losses["batch"].is_monotonic_decreasing
    assert losses["incremental"].iloc[0] == pytest.approx(losses["batch"].iloc[0]), "its first pass is batch EM's"
    assert losses["incremental"].iloc[-1] < losses["batch"].iloc[-1]
    assert losses["incremental, momentum"].iloc[-1] < losses["incremental"].iloc[-1]
    reached = found.numbers["reached"]
    assert reached["batch"]["log_loss"]["mean"] == 12
    expected = (losses["incremental"] <= losses["batch"].iloc[-1]).idxmax()
    assert reached["incremental"]["log_loss"]["mean"] == expected < 12
    last = {name: found.numbers["last"][name]["test"]["mean"] for name in ("batch", "incremental")}
    apart = found.numbers["disagreement"]["batch"]["incremental"]["mean"]
    assert abs(last["batch"] - last["incremental"]) <= apart <= sum(last.values())


def test_a_penalty_is_chosen_on_validation(inputs: Inputs) -> None:
    study = study_of("ridge", size=2, decision="multiclass", penalties=[0.1, 0], schedule=SCHEDULE)
    found = ridge.run(inputs, study)
    assert found.table["penalty"].tolist() == [0.0, 0.1]
    best = found.table.loc[found.table["validation"].idxmin()]
    assert found.numbers["chosen"]["test"]["mean"] == best["test"]
    architecture = build_architecture("multiclass", 2, inputs.classes)
    both = (fit_architecture(inputs, architecture, study.schedule, ridge=penalty)[0] for penalty in (0.0, 0.1))
    wrong = [decisions(architecture, W, inputs.X["test"]) != inputs.y["test"] for W in both]
    assert found.table["disagreement"].tolist() == [0, pytest.approx(int((wrong[0] ^ wrong[1]).sum()) / 60)]


def test_training_on_distorted_copies(inputs: Inputs) -> None:
    more = distorted.enlarged(inputs, 300, 1.0, seed=0)
    assert torch.equal(more.X["train"][:120], inputs.X["train"])
    assert torch.equal(more.y["train"][120:240], inputs.y["train"])
    settings = {"size": 2, "decision": "multiclass", "schedule": SCHEDULE, "seed": 0}
    found = distorted.run(inputs, study_of("distorted", examples=240, strengths=[0.5, 2.0], **settings))
    assert found.table[["examples", "strength"]].to_numpy().tolist() == [[120, 0.0], [240, 0.5], [240, 2.0]]
    best = found.table.iloc[1 + found.table["validation"].iloc[1:].to_numpy().argmin()]
    assert found.numbers["distorted"]["strength"] == best["strength"]
    assert found.numbers["distorted"]["test"]["mean"] == best["test"]
    assert found.numbers["plain"]["test"]["mean"] == found.table["test"].iloc[0]


@pytest.mark.parametrize("changed", [{"examples": 360}, {"seed": 1}])
def test_a_checkpoint_is_of_the_same_distorted_copies(inputs: Inputs, tmp_path: Path, changed: dict[str, int]) -> None:
    """A fit that ended is not taken for one on other copies."""
    settings = {"size": 1, "decision": "multiclass", "schedule": SCHEDULE, "strengths": [1.0]}
    tables = []
    for folder in (tmp_path / "both", tmp_path / "both", tmp_path / "new"):
        study = study_of("distorted", **{"examples": 240, "seed": 0, **(changed if tables else {})}, **settings)
        tables.append(distorted.run(replace(inputs, checkpoints=folder), study).table)
    columns = ["examples", "iterations", "train", "test"]
    pd.testing.assert_frame_equal(tables[1][columns], tables[2][columns])


def test_distortions_are_affine_maps_and_fields() -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(5, 1, 12, 12)
    torch.testing.assert_close(distort(pictures, generator, 0.0), pictures, rtol=0, atol=1e-5)
    # A bar turned by up to 10 degrees keeps its ink and its centre.
    bar = torch.zeros(200, 1, 28, 28)
    bar[:, :, 6:22, 13:15] = 1
    turned = distort(bar, generator, stretch=0, shear=0, shift=0, elastic=0)[:, 0]
    assert (turned.sum((1, 2)) - 32).abs().max() < 1.5
    places = torch.arange(28.0) - 13.5
    for axis in (1, 2):
        assert ((turned.sum(axis) * places).sum(1) / turned.sum((1, 2))).abs().max() < 0.1
    along, across = places[:, None] * places, (places**2)[:, None]
    slope = (turned * along).sum((1, 2)) / (turned * across).sum((1, 2))
    assert slope.abs().max() == pytest.approx(math.tan(math.radians(10)), abs=0.02)
    # A shift moves the bar's centre by up to so many pixels on each axis.
    shifted = distort(bar, generator, angle=0, stretch=0, shear=0, shift=3, elastic=0)[:, 0]
    for axis in (1, 2):
        centre = (shifted.sum(axis) * places).sum(1) / 32
        assert (centre.min(), centre.max()) == (pytest.approx(-3, abs=0.1), pytest.approx(3, abs=0.1))
    # An elastic field alone moves ink by about its sd.
    moved = distort(bar, generator, angle=0, stretch=0, shear=0, shift=0)[:, 0, 8:20]
    columns = (moved.sum(1) * places).sum(1) / moved.sum((1, 2))
    assert 0.1 < columns.std() < 0.7


def test_test_images_have_no_part_in_a_fit(inputs: Inputs) -> None:
    schedule, architecture = ScheduleParams.model_validate(SCHEDULE), build_architecture("multiclass", 2, 3)

    def fitted(part: str) -> torch.Tensor:
        """With the images of a part in another order than their classes."""
        other = replace(inputs, X=inputs.X | {part: inputs.X[part].flip(0)})
        return fit_architecture(other, architecture, schedule)[0]

    W = fit_architecture(inputs, architecture, schedule)[0]
    assert torch.equal(fitted("test"), W)
    assert not torch.equal(fitted("validation"), W)
