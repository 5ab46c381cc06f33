"""Routing iterations of matrix capsules against the procedure as printed, and distances of votes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from em_loop import by_the_letter, network
from small import small_run, squares

from pipeline.classification import errors
from pipeline.learning.model import EvaluationInputs
from pipeline.systems.matrix_capsules.evaluation import concentration, distances, evaluate, histograms
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.routing import follow, routed_layers


def small_capsules(**changes: Any) -> MatrixCapsules:
    model = network(iterations=3, **changes)
    if model.params.batch_norm:
        model.end_epoch(torch.rand(32, 1, 10, 10), 16)
    return model.eval()


BAYES = {"activation": "bayes", "batch_norm": True, "saving": None}


@pytest.mark.parametrize("changes", [{}, {"activation": "mixing"}, BAYES], ids=["mdl", "mixing", "Bayes, batch norm"])
def test_the_last_iteration_is_what_the_network_gives(changes: dict[str, Any]) -> None:
    model, images = small_capsules(**changes), torch.rand(5, 1, 10, 10)
    found = follow(model, 3, images)
    torch.testing.assert_close(found.activations[:, -1], model.scores(images).detach(), rtol=1e-4, atol=1e-5)
    assert found.shares.shape == (5, 3, 3, 9, 2)
    assert found.spreads.shape == (5, 3, 3)
    torch.testing.assert_close(found.parts, model.capsules(images)[-2][1].detach())


def test_every_iteration_is_the_one_of_a_loop_over_numbers() -> None:
    """Activations after each number of iterations."""
    model, images = small_capsules().double(), torch.rand(2, 1, 10, 10, dtype=torch.float64)
    layer = model.routed[-1]
    below = tuple(each.detach() for each in model.capsules(images)[-2])
    inputs = [*below, layer.full_transformations().detach(), *(each.detach() for each in layer.betas())]
    found = follow(model, 4, images)
    for t in range(4):
        how = replace(layer.routing(), iterations=t + 1)
        for image in range(2):
            plain = by_the_letter(inputs, image, how, stride=1)[1]
            np.testing.assert_allclose(found.activations[image, t], plain[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.shares.sum(2), 1, rtol=1e-6)
    # Procedure 1 fits the variances of the votes: their sum over a pose is the square of the spread.
    variance = -0.5 / layer.steps(below)[0].parents.quadratic[:, 0] - layer.params.variance_floor
    torch.testing.assert_close(found.spreads[:, 0].square(), variance.sum(-1).detach())


WIDE = {"capsule_kernel": 3, "capsule_strides": [2]}
"""One position sees three by three of four by four: seven see no parent."""


@pytest.mark.parametrize(
    "changes",
    [{}, WIDE, {"competition": "position"}, {"activation": "mixing"}],
    ids=["all parents", "some unseen", "by position", "mixing"],
)
def test_capsules_divide_themselves_as_in_a_loop_over_numbers(changes: dict[str, Any]) -> None:
    """In every layer, each child among the parents of all positions that see it."""
    model, images = small_capsules(**changes).double(), torch.rand(2, 1, 10, 10, dtype=torch.float64)
    capsules = [[each.detach() for each in layer] for layer in model.capsules(images)]
    for place, (layer, found) in enumerate(zip(model.routed, routed_layers(model, images), strict=True)):
        below, how = capsules[place], layer.routing()
        inputs = [*below, layer.full_transformations(), *layer.betas()]
        for image in range(2):
            _, active, assignments = by_the_letter(inputs, image, how, stride=2 if changes == WIDE else 1)
            entropy = total = 0.0
            for child in {child for child, _ in assignments[-1]}:
                shares = [share for (other, _), share in assignments[-1].items() if other == child]
                if len(shares) > 1:
                    q = [share / sum(shares) for share in shares]
                    weight = float(below[1][image][child])
                    entropy -= weight * sum(x * math.log(x) for x in q if x) / math.log(len(q))
                    total += weight
            assert found.entropy[image].item() == pytest.approx(entropy, rel=1e-4)
            assert found.active[image].item() == pytest.approx(total)
            unit = active.size if how.params.activation == "mixing" else 1
            np.testing.assert_allclose(found.activations[image], unit * active.max(0), rtol=1e-4)


def test_distances_are_of_votes_to_means() -> None:
    model = network().eval()
    images = torch.rand(5, 1, 10, 10)
    found, shares = distances(model, images)
    assert found.shape == shares.shape == (2, 5, 3, 18)  # iterations, images, classes, 9 positions of 2 types
    below = model.capsules(images)[-2]
    votes = model.routed[-1].votes(below)[:, 0]
    means = model.capsules(images)[-1][0][:, 0]
    np.testing.assert_allclose(found[-1], (votes - means.unsqueeze(2)).norm(dim=-1).detach(), rtol=1e-4, atol=1e-5)
    active = below[1].flatten(1).detach()
    np.testing.assert_allclose(shares.sum(2), active.expand(2, -1, -1), rtol=1e-4)
    np.testing.assert_allclose(shares[0], (active / 3).unsqueeze(1).expand(-1, 3, -1), rtol=1e-4)


def test_votes_are_shown_of_two_classes_that_are_recognised_and_of_an_image_that_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset, run, model = squares(), small_run("matrix_capsules"), network().eval()
    images, labels = dataset.part("test")
    answers = torch.tensor(labels)
    answers[[1, 5]] = (answers[[1, 5]] + 1) % 3
    monkeypatch.setattr(errors, "scores", lambda model, images: torch.eye(3)[answers])
    params: Any = None  # not needed
    found = evaluate(EvaluationInputs([model], dataset, run, params, torch.device("cpu"), "small"))
    second = next(i for i in range(2, 12) if i != 5 and labels[i] != labels[0])
    chosen = [0, second, 1]
    np.testing.assert_array_equal(found.arrays["images"], images[chosen])
    assert found.arrays["labels"].tolist() == labels[chosen].tolist()
    assert found.arrays["scores"].argmax(1).tolist() == answers[chosen].tolist()
    assert found.arrays["counts"].shape == (3, 2, 3, 40)
    assert found.numbers["voted_images"] == len(labels)
    assert found.numbers["test"]["crops"]["mean"] == pytest.approx(2 / 12)
    np.testing.assert_allclose(found.table.set_index("test")["accuracy"][["centre", "crops"]], 10 / 12)


def test_histograms_by_hand() -> None:
    """One image, two classes, two votes, of which the near one moves to the second class at the second iteration."""
    distance = np.full((2, 1, 2, 2), [0.1, 2.0], np.float32)
    shares = np.array([[[[0.5, 0.5], [0.5, 0.5]]], [[[0.1, 0.5], [0.9, 0.5]]]], np.float32)
    counts = histograms(distance, shares, [0], bins=2)["counts"]
    np.testing.assert_allclose(counts[0, 1], [[0.1, 0.5], [0.9, 0.5]], rtol=1e-6)
    far = np.append(np.ones(399), 50).astype(np.float32).reshape(1, 1, 2, 200)
    edges = histograms(far, np.ones_like(far), [0], bins=2)["edges"]
    np.testing.assert_allclose(edges, [0, 0.5, 1], err_msg="the farthest 1 % is left out")


@pytest.mark.parametrize(("later", "near"), [(0.5, [0.0, 1.0]), (2.0, [0.0, 1.0]), (3.0, [0.0, 0.0])])
def test_near_is_as_near_as_the_closest_tenth_after_the_first_iteration(later: float, near: list[float]) -> None:
    """Ten votes for each of two classes, at first 1 to 20 from their means: the closest tenth ends at a distance of 2.
    Then the votes for the image's own class, the second, have moved to `later`, and the others away.
    """
    first = np.arange(1, 21, dtype=np.float32).reshape(1, 2, 10)
    second = np.stack([np.full((1, 10), 50, np.float32), np.full((1, 10), later, np.float32)], axis=1)
    shares = np.stack([np.full((1, 2, 10), 0.5), np.full((1, 2, 10), [[0.1], [0.3]])]).astype(np.float32)
    found = concentration(np.stack([first, second]), shares, np.array([1]))
    assert found["share"].tolist() == pytest.approx([0.5, 0.75, *near])
