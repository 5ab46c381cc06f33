"""Errors by crops and factors, distances of votes, attacks, and matched viewpoints: by hand, or on networks so simple
that what must come out is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small import SMALL_MATRIX_CAPSULES, squares
from torch import Tensor

from pipeline.classification.adversarial import Attack, attacked, black_box, gradient, gradient_sizes, white_box
from pipeline.classification.classifier import Classifier
from pipeline.classification.errors import classification_errors, crop_places, crop_scores
from pipeline.classification.viewpoint_matching import errors, familiar_views, match
from pipeline.learning.settings import CropParams
from pipeline.systems.matrix_capsules.evaluation.vote_distances import concentration, distances, histograms
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams

CROP = CropParams(crop=8, brightness=0.0, contrast=0.0)


class Brightness(Classifier):
    """Two classes, dark and bright: scores are linear in the mean pixel."""

    def __init__(self, weight: float = 4.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight))

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        excess = self.weight * (images.mean((1, 2, 3)) - 0.5)
        return torch.stack([-excess, excess], 1)

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(scores, labels, reduction="none")


@pytest.mark.parametrize("free", [4, 7, 8, 12, 15, 16])
def test_thirteen_crops_span_the_image_and_begin_in_the_middle(free: int) -> None:
    places = crop_places(32 + free, 32)
    assert len(set(places)) == len(places) == 13
    assert places[0] == (free // 2, free // 2)
    assert {(0, 0), (0, free), (free, 0), (free, free)} < set(places)
    if free == 16:
        assert {(4, 4), (4, 12), (12, 4), (12, 12), (0, 8), (8, 16)} < set(places)


def test_scores_of_crops_are_those_of_the_images_cut() -> None:
    images = squares().images
    model = Brightness()
    found = crop_scores(model, images, CROP)
    for crop, (row, column) in zip(found, crop_places(12, 8), strict=True):
        cut = torch.from_numpy(images[..., row : row + 8, column : column + 8]).float() / 255
        torch.testing.assert_close(crop, model.scores(cut))


def test_errors_by_crops_and_by_factor_are_counted() -> None:
    dataset = squares()
    model = Brightness()
    table = classification_errors(model, dataset, CROP).set_index("metric")["value"]
    images, labels = dataset.part("test")
    right = (images[..., 2:10, 2:10].mean((1, 2, 3)) > 127.5).astype(int) == labels
    assert table["centre"] == pytest.approx(1 - right.mean())
    each = crop_scores(model, images, CROP)
    voted = each.softmax(-1).mean(0).argmax(-1).numpy()
    assert table["crops"] == pytest.approx((voted != labels).mean())
    model.scores_are_activations = True  # type: ignore[misc]
    averaged = each.mean(0).argmax(-1).numpy()
    again = classification_errors(model, dataset, CROP).set_index("metric")["value"]
    assert again["crops"] == pytest.approx((averaged != labels).mean())
    azimuths = dataset.factors["azimuth"][dataset.split["test"]]
    for azimuth in np.unique(azimuths):
        assert table[f"azimuth-{azimuth}"] == pytest.approx(1 - right[azimuths == azimuth].mean())


def test_whoever_watches_hears_of_every_crop_of_every_image() -> None:
    dataset, model = squares(), Brightness()
    images = len(dataset.split["test"])
    heard: list[int] = []
    classification_errors(model, dataset, CROP, done=heard.append)
    assert sum(heard) == 13 * images
    heard.clear()
    classification_errors(model, dataset, CROP, many_crops=False, done=heard.append)
    assert sum(heard) == images


def test_attacks_move_every_pixel_by_epsilon_against_the_model() -> None:
    model = Brightness()
    images, labels = torch.full((2, 1, 4, 4), 0.6), torch.tensor([1, 0])
    for steps in (1, 4):
        found = attacked(model, images, labels, 0.15, Attack(steps, targeted=False))
        torch.testing.assert_close(found[0], images[0] - 0.15)  # bright, made darker
        torch.testing.assert_close(found[1], images[1] + 0.15)
        aimed = attacked(model, images, labels, 0.15, Attack(steps, targeted=True))
        torch.testing.assert_close(aimed[0], images[0] + 0.15)
    assert attacked(model, images, labels, 0.7, Attack(1, targeted=False)).aminmax() == (0.0, 1.0)
    assert torch.equal(attacked(model, images, labels, 0.0, Attack(3, targeted=False)), images)


class Sure(Brightness):
    """Has a loss that ends where it is sure, as the spread loss does."""

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        own = scores.gather(1, labels[:, None])[:, 0]
        return (0.1 - own).clamp_min(0)


def test_a_loss_that_ends_protects_nobody() -> None:
    """Its own gradient is 0 and moves no pixel; through cross-entropy of its logits the network falls all the same."""
    model, images, labels = Sure(), torch.full((4, 1, 4, 4), 0.6), torch.ones(4, dtype=torch.long)
    assert torch.equal(attacked(model, images, labels, 0.2, Attack(1, targeted=False)), images)
    heard: list[int] = []
    found = white_box(model, images, labels, [0.0, 0.2], 2, heard.append)
    assert sum(heard) == len(found) == 8
    table = found.set_index(["method", "kind", "epsilon"]).sort_index()
    for method in ("FGSM", "BIM"):
        assert table.loc[(method, "general", 0.2), ["value", "own_loss"]].tolist() == [0.0, 1.0]
        assert table.loc[(method, "general", 0.0), ["value", "own_loss"]].tolist() == [1.0, 1.0]
    assert gradient_sizes(model, images, labels)["without"] == 1.0
    assert gradient_sizes(Brightness(), images, labels)["without"] == 0.0


def test_gradients_are_those_of_each_image_alone() -> None:
    model = Brightness()
    images, labels = torch.rand(70, 1, 4, 4), torch.arange(70) % 2
    found = gradient(model, images, labels)
    i, step = 69, 1e-3
    moved = images[i : i + 1].clone()
    moved[0, 0, 2, 3] += step
    losses = [model.losses(model.scores(x), labels[i : i + 1], torch.tensor(0.0)) for x in (images[i : i + 1], moved)]
    assert found[i, 0, 2, 3].item() == pytest.approx((losses[1] - losses[0]).item() / step, rel=1e-2)


def test_white_box_attacks_by_hand() -> None:
    """Images 0.1 and 0.3 from the border between the classes fall in turn; targets are reached likewise."""
    model = Brightness()
    images = torch.stack([torch.full((1, 4, 4), 0.6), torch.full((1, 4, 4), 0.2)])
    table = white_box(model, images, torch.tensor([1, 0]), [0.0, 0.2, 0.4], 3)
    values = {key: each["value"].tolist() for key, each in table.groupby(["method", "kind"])}
    for method in ("FGSM", "BIM"):
        assert values[method, "general"] == [1.0, 0.5, 0.0]
        assert values[method, "targeted"] == [0.0, 0.5, 1.0]


def test_black_box_attacks_hurt_whoever_is_alike() -> None:
    images, labels = torch.full((3, 1, 4, 4), 0.6), torch.tensor([1, 1, 1])
    victims: dict[str, Classifier] = {"alike": Brightness(1.0), "contrary": Brightness(-1.0)}
    table = black_box(Brightness(4.0), victims, images, labels, [0.2], 2)
    values = table.set_index(["method", "victim"])["value"]
    assert values["FGSM", "alike"] == values["BIM", "alike"] == 0.0
    assert values["FGSM", "contrary"] == 1.0


def test_sizes_of_gradients_tell_exact_zeros() -> None:
    class Half(Brightness):
        def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
            return super().scores(images[..., :2])  # the right half does not matter

    images, labels = torch.rand(5, 1, 4, 4), torch.ones(5, dtype=torch.long)
    assert gradient_sizes(Half(), images, labels)["zeros"] == 0.5
    whole = gradient_sizes(Brightness(), images, labels)
    assert whole["zeros"] == 0.0
    expected = gradient(Brightness(), images, labels).abs().median().item()
    assert whole["median"] == pytest.approx(expected, rel=1e-3)


def small_capsules(**changes: Any) -> MatrixCapsules:
    torch.manual_seed(0)
    return MatrixCapsules(MatrixCapsulesModelParams.model_validate({**SMALL_MATRIX_CAPSULES, **changes}), 10).eval()


def test_distances_are_of_votes_to_means() -> None:
    model, images = small_capsules(), torch.rand(5, 1, 10, 10)
    found, shares = distances(model, images)
    assert found.shape == shares.shape == (2, 5, 3, 18)  # iterations, images, classes, 9 positions of 2 types
    below = model.capsules(images)[-2]
    votes = model.routed[-1].votes(below)[:, 0]  # type: ignore[operator]
    means = model.capsules(images)[-1][0][:, 0]
    np.testing.assert_allclose(found[-1], (votes - means.unsqueeze(2)).norm(dim=-1).detach(), rtol=1e-4, atol=1e-5)
    active = below[1].flatten(1).detach()
    np.testing.assert_allclose(shares.sum(2), active.expand(2, -1, -1), rtol=1e-4)
    np.testing.assert_allclose(shares[0], (active / 3).unsqueeze(1).expand(-1, 3, -1), rtol=1e-4)


def test_concentration_by_hand() -> None:
    """One image of class 1 of two, two votes: the near one moves to its class at the second iteration."""
    distance = np.array([[[[0.1, 2.0], [0.1, 2.0]]], [[[0.1, 2.0], [0.1, 2.0]]]], np.float32)
    shares = np.array([[[[0.5, 0.5], [0.5, 0.5]]], [[[0.1, 0.5], [0.9, 0.5]]]], np.float32)
    found = concentration(distance, shares, np.array([1]))
    assert found["all"] == pytest.approx([0.5, 0.7])
    assert found["near"] == pytest.approx([0.5, 0.9])
    counts = histograms(distance, shares, [0], bins=2)["counts"]
    np.testing.assert_allclose(counts[0, 1], [[0.1, 0.5], [0.9, 0.5]], rtol=1e-6)


def test_only_familiar_viewpoints_are_learnt_from() -> None:
    dataset = squares()
    for axis, familiar in (("azimuth", {300, 320, 340, 0, 20, 40}), ("elevation", {30, 35, 40})):
        views = familiar_views(dataset, axis)  # type: ignore[arg-type]
        for part in ("train", "validation"):
            chosen = views.dataset.split[part]
            assert set(dataset.factors[axis][chosen]) <= familiar
            assert 0 < len(chosen) < len(dataset.split[part])
            assert set(chosen) <= set(dataset.split[part])
        count = {name: len(labels) for name, (_, labels) in views.watched.items()}
        assert sum(count.values()) == len(dataset.split["test"])
        assert min(count.values()) > 0


def test_networks_match_where_the_worse_is_at_its_best() -> None:
    capsules = pd.DataFrame({"replica": 0, "epoch": [1, 2, 3], "familiar": [0.5, 0.3, 0.1], "novel": [0.6, 0.4, 0.2]})
    cnn = pd.DataFrame({"replica": 0, "epoch": [1, 2, 3], "familiar": [0.6, 0.35, 0.4], "novel": [0.8, 0.7, 0.9]})
    found = match(capsules, cnn).set_index("network")
    assert found.loc["cnn", ["epoch", "familiar", "novel"]].tolist() == [2, 0.35, 0.7]
    assert found.loc["capsules", ["epoch", "familiar", "novel"]].tolist() == [2, 0.3, 0.4]
    history = pd.DataFrame(
        {"replica": [0], "epoch": [1], "familiar_accuracy": [0.75], "novel_accuracy": [0.5], "train_loss": [1.0]}
    )
    assert errors(history).to_dict("records") == [{"replica": 0, "epoch": 1, "familiar": 0.25, "novel": 0.5}]
