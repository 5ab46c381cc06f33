"""Linear probes: what they can read, and that validation alone chooses their strength; and probes out of distribution,
with models whose features are known so well that accuracies are, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small import EVALUATE, FAILURES, SIZE, SMALL_VAE, small_run, squares
from torch import Tensor

from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.layers import poses
from pipeline.learning.model import EvaluationInputs
from pipeline.learning.train import Trained
from pipeline.params import Params
from pipeline.probes import features as features_module
from pipeline.probes.evaluation import evaluate, kmeans_accuracy
from pipeline.probes.generalisation import clean_probe, fit_probe, probe_accuracies, rotated, rotation_probes
from pipeline.probes.sweep import swept
from pipeline.shared_params import SharedParams
from pipeline.systems.generative.evaluation.consistency import part_use
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.sweep import sweep
from pipeline.systems.vae.model.vae import VAE
from pipeline.systems.vae.settings import VAEModelParams

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)


def clusters(count: int, classes: int = 4, spread: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Features `[count, 6]` in well separated clusters of very different scales, and their labels."""
    centres = np.random.default_rng(1).normal(size=(classes, 6))
    labels = RANDOM.integers(0, classes, count)
    features = centres[labels] + RANDOM.normal(0, spread, (count, 6))
    return (features * 10.0 ** np.arange(-3, 3)).astype(np.float32), labels


def test_separable_features_are_read_without_error() -> None:
    probe = fit_probe(clusters(200), clusters(50), [0.01, 0.1, 1.0, 10.0])
    features, labels = clusters(100)
    assert probe.score(features, labels) == 1.0
    assert probe.score(features, (labels + 1) % 4) == 0.0
    assert probe.score(features, np.where(np.arange(100) < 25, labels, -1)) == 0.25


def test_a_feature_next_to_nothing_does_no_harm() -> None:
    """Expected children of an object that owns none: an sd below the least single-precision number, and not zero."""
    features, labels = clusters(400)
    faint = np.zeros((400, 1), np.float32)
    faint[0] = 1e-45
    with_faint = np.concatenate([features, faint], axis=1)
    assert fit_probe((with_faint, labels), (with_faint, labels), [1.0]).score(with_faint, labels) == 1.0


def test_features_are_standardised_as_those_of_training_are() -> None:
    train, (features, labels) = clusters(200), clusters(50)
    standard = fit_probe(train, (10 * features + 1, labels), [1.0])[0].transform(train[0])
    np.testing.assert_allclose(standard.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(0), 1, rtol=1e-5)


def contradicting(count: int) -> tuple[np.ndarray, np.ndarray]:
    """A feature that tells two classes apart, of which the first has four fifths of the images."""
    labels = (np.arange(count) % 5 == 0).astype(np.int64)
    return (labels[:, None] + RANDOM.normal(0, 0.01, (count, 1))).astype(np.float32), labels


@pytest.mark.parametrize("strengths", [[1e-7, 100.0], [100.0, 1e-7]])
def test_validation_chooses_the_strength_even_where_another_would_do_better_elsewhere(strengths: list[float]) -> None:
    """A probe too weak to use its feature always answers with the larger class: perfect on these validation labels."""
    train, (features, labels) = contradicting(200), contradicting(100)
    probe = fit_probe(train, (features, np.zeros_like(labels)), strengths)
    assert probe[-1].C == 1e-7
    assert probe.score(features, labels) == 0.8
    assert fit_probe(train, (features, labels), strengths)[-1].C == 100.0


@pytest.mark.parametrize("strength", [0.01, 100.0])
def test_a_fit_started_from_a_weaker_one_is_the_optimum(strength: float) -> None:
    """The objective of scikit-learn's own optimum, found by Newton's method in double precision."""
    from sklearn.linear_model import LogisticRegression

    features, labels = clusters(300)
    labels = np.where(RANDOM.random(300) < 0.2, (labels + 1) % 4, labels)  # not separable
    wrong = np.full_like(labels, -1)
    started = fit_probe((features, labels), (features, wrong), [strength, strength / 10, strength / 100])
    assert strength == started[-1].C  # none is better, the first of equals
    inputs = started[0][:-1].transform(features)
    reference = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10).fit(inputs, labels)

    def objective(classifier: LogisticRegression) -> float:
        logits = inputs @ classifier.coef_.T + classifier.intercept_
        losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(labels)), labels]
        return float(losses.sum() + 0.5 / strength * (classifier.coef_**2).sum())

    assert objective(started[-1]) == pytest.approx(objective(reference), rel=1e-3)


# ---- out of distribution


class Planted(VAE):
    """A model whose code is known.

    Args:
        code: of images `[B, 1, S, S]`.
    """

    def __init__(self, code: Callable[[Tensor], Tensor]) -> None:
        super().__init__(VAEModelParams.model_validate(SMALL_VAE), SIZE)
        self.code = code

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        mu = self.code(images).flatten(1)
        return mu, torch.ones_like(mu)


def brightest() -> Planted:
    """Its code is the brightest pixel of each image, which no warp inside the canvas takes away."""
    return Planted(lambda images: images.amax((1, 2, 3), keepdim=True))


def settings(**changes: Any) -> Any:
    return EVALUATE.model_copy(update={"probe_images": 1000, **changes})


def accuracies(table: Any, protocol: str) -> dict[str, float]:
    chosen = table[table["protocol"] == protocol]
    return dict(zip(chosen["test"], chosen["accuracy"], strict=True))


def test_every_test_is_run_under_both_protocols_for_every_kind_of_features(
    capsules: GenerativeModel, dataset: Dataset
) -> None:
    table = probe_accuracies(capsules, dataset, settings(angles=[0.0, 22.5]), CPU)
    assert table.columns.tolist() == ["features", "protocol", "test", "strength", "accuracy"]
    assert set(zip(table["features"], table["protocol"], table["test"], strict=True)) == {
        (features, protocol, test)
        for features in ("t0", "t0_A0", "children", "t0_sampled", "t0_binary")
        for protocol in ("refit", "fixed")
        for test in ("rotated_0", "rotated_22.5", "affine")
    }
    assert len(table) == 30
    assert table["accuracy"].between(0, 1).all()
    probe = clean_probe(capsules, dataset, "t0_A0", settings(), CPU)
    images, labels = dataset.part("test")
    expected = probe.score(features_module.features(capsules, images, CPU)["t0_A0"], labels)
    rows = table[(table["features"] == "t0_A0") & (table["test"] == "rotated_0")]
    assert rows["accuracy"].tolist() == pytest.approx([expected, expected]), "a rotation by nothing is the clean test"
    assert rows["strength"].tolist() == [probe[-1].C, probe[-1].C]
    again = probe_accuracies(capsules, dataset, settings(angles=[0.0, 22.5]), CPU)
    assert table.equals(again), "a seed gives the same numbers"


def test_refit_probes_follow_the_images_and_fixed_ones_do_not(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All images turned by exactly half a turn. Nine fields tell where the square is as before, but other ones."""
    half = poses.rotation(torch.tensor([180.0]))
    monkeypatch.setattr(warps, "uniform_rotations", lambda images, *_: half.expand(len(images), 2, 3))
    places = Planted(lambda images: torch.nn.functional.adaptive_avg_pool2d(images, 3))
    table = probe_accuracies(places, dataset, settings(angles=[0.0, 180.0]), CPU)
    refit, fixed = accuracies(table, "refit"), accuracies(table, "fixed")
    assert refit["rotated_0"] == fixed["rotated_0"] == 1.0
    assert refit["rotated_180"] == 1.0
    assert fixed["rotated_180"] < 0.5


def bright(count: int) -> Dataset:
    """Images with a block whose brightness is the label's, in another place each time."""
    base = squares(train=count, validation=12, test=11)
    images = np.zeros_like(base.images)
    random = np.random.default_rng(1)
    for image, label in zip(images, base.labels, strict=True):
        row, column = random.integers(2, 6, 2)
        image[0, row : row + 4, column : column + 4] = 80 * (label + 1)
    return replace(base, images=images)


def test_affine_versions_keep_their_labels_and_their_ink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 5 over three versions of 11 images: an image stays with its label and with its warp."""
    monkeypatch.setattr(features_module, "BATCH", 5)
    table = probe_accuracies(brightest(), bright(40), settings(angles=[0.0], affine_versions=3), CPU)
    assert set(table["accuracy"]) == {1.0}


def test_official_affine_images_are_tested_by_the_probes_of_the_affine_test() -> None:
    dataset = bright(40)
    table = probe_accuracies(brightest(), dataset, settings(angles=[0.0]), CPU, official=dataset.part("test"))
    assert accuracies(table, "refit")["affnist"] == 1.0
    assert accuracies(table, "fixed")["affnist"] == 1.0
    images, labels = dataset.part("test")
    table = probe_accuracies(brightest(), dataset, settings(angles=[0.0]), CPU, official=(images, (labels + 1) % 3))
    assert accuracies(table, "refit")["affnist"] == 0.0
    strengths = table[table["protocol"] == "refit"].set_index("test")["strength"]
    assert strengths["affnist"] == strengths["affine"]


def test_probes_of_one_angle_are_fit_and_tested_within_it(capsules: GenerativeModel, dataset: Dataset) -> None:
    table = probe_accuracies(capsules, dataset, settings(angles=[0.0, 90.0]), CPU)
    not_sampled = table[(table["protocol"] == "refit") & ~table["features"].isin(["t0_sampled", "t0_binary"])]
    refit = not_sampled.set_index(["test", "features"])["accuracy"]
    for angle in (0.0, 90.0):
        measured = rotation_probes(capsules, dataset, angle, settings(), CPU)
        assert measured.columns.tolist() == ["features", "strength", "accuracy"]
        expected = refit[rotated(angle)].to_dict()
        assert measured.set_index("features")["accuracy"].to_dict() == pytest.approx(expected)


def test_a_sweep_probes_within_the_angle_that_it_trained_on(capsules: GenerativeModel, dataset: Dataset) -> None:
    params = Params.model_construct(evaluate=settings(), failures=FAILURES)
    torch.nn.init.constant_(capsules.template_weights, 0.2)  # there is ink, so that part use has a consistency
    inputs = EvaluationInputs([capsules], dataset, swept(small_run(), 90.0, 1, 1.0), params, CPU, "sweep")
    losses = {"replica": [0, 0, 1, 1], "epoch": [1, 2, 1, 2], "validation_loss": [3.0, 5.0, 2.0, 9.0]}
    history, kept = pd.DataFrame(losses), [2, 1]
    numbers = sweep(inputs, Trained([], history, kept, 0.0)).numbers
    assert {name: value["mean"] for name, value in numbers["validation"].items()} == {"loss": 3.5}
    with_bounds = history.assign(validation_bound=[-1.0, -3.0, -5.0, -7.0])
    assert sweep(inputs, Trained([], with_bounds, kept, 0.0)).numbers["validation"]["bound"]["mean"] == -4
    at_90, upright = (
        rotation_probes(capsules, dataset, angle, settings(), CPU, sampled=True).set_index("features")["accuracy"]
        for angle in (90.0, 0.0)
    )
    found = {name: probe["mean"] for name, probe in numbers["probe"].items()}
    assert found == pytest.approx(at_90.to_dict()) != upright.to_dict()
    few = [each[:10] for each in dataset.part("test")]
    used, used_upright = (part_use(capsules, few[0], few[1], angle, 0)[0] for angle in (90.0, 0.0))
    assert numbers["consistency"]["mean"] == pytest.approx(used) != used_upright


def test_clusters_and_metrics_are_of_test_images(capsules: GenerativeModel, dataset: Dataset) -> None:
    params = SharedParams.model_construct(evaluate=settings(angles=[0.0], affine_versions=1))
    numbers = evaluate(EvaluationInputs([capsules], dataset, small_run(), params, CPU, "t")).numbers
    images, labels = dataset.part("test")
    for name, values in features_module.features(capsules, images, CPU).items():
        assert numbers["kmeans"][name]["mean"] == kmeans_accuracy(values, labels, 3, 0), name
    metrics = features_module.metrics_on_test_images(capsules, dataset, 0, CPU)
    assert {name: each["mean"] for name, each in numbers["test"].items()} == pytest.approx(metrics)
