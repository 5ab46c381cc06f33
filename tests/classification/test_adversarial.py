"""Attacks: by hand, or on networks so simple that what must come out is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from brightness import Brightness
from small import squares
from torch import Tensor

from pipeline.classification.adversarial import attacked, black_box, gradient, gradient_sizes, outcome, white_box
from pipeline.classification.settings import AttackParams


def test_attacks_move_every_pixel_by_epsilon_against_the_model() -> None:
    model = Brightness()
    images, labels = torch.full((2, 1, 4, 4), 0.6), torch.tensor([1, 0])
    for steps in (1, 4):
        found = attacked(model, images, labels, 0.15, steps)
        torch.testing.assert_close(found[0], images[0] - 0.15)  # bright, made darker
        torch.testing.assert_close(found[1], images[1] + 0.15)
        aimed = attacked(model, images, labels, 0.15, steps, targeted=True)
        torch.testing.assert_close(aimed[0], images[0] + 0.15)
    assert attacked(model, images, labels, 0.7, 1).aminmax() == (0.0, 1.0)
    assert torch.equal(attacked(model, images, labels, 0.0, 3), images)


class Flat(Brightness):
    """Its own loss has no gradient anywhere, as the spread loss has none where a network is sure."""

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        return 0 * scores.sum(1)


class Blind(Brightness):
    """It does not see the first of four rows."""

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        return super().scores(images[..., 1:, :])


def test_a_loss_that_ends_protects_nobody() -> None:
    """Its own gradient is 0 and moves no pixel; through cross-entropy of its logits the network falls all the same, and
    targets are reached.
    """
    model, images, labels = Flat(), torch.full((4, 1, 4, 4), 0.6), torch.ones(4, dtype=torch.long)
    assert torch.equal(attacked(model, images, labels, 0.2, 1), images)
    table = white_box(model, images, labels, [0.0, 0.2], 2).set_index(["method", "kind", "epsilon"]).sort_index()
    for method in ("FGSM", "BIM"):
        for kind, value, before in (("general", 0.0, 1.0), ("targeted", 1.0, 0.0)):
            assert table.loc[(method, kind, 0.2), ["value", "own_loss"]].tolist() == [value, before]
            assert table.loc[(method, kind, 0.0), ["value", "own_loss"]].tolist() == [before, before]
    assert gradient_sizes(model, images, labels) == {"zeros": 1.0, "median": 0.0, "without": 1.0}
    sizes = gradient_sizes(Blind(), images, labels)
    assert (sizes["zeros"], sizes["without"]) == (0.25, 0.0)
    seen = gradient(Blind(), images, labels)[0, 0, 3, 3]
    assert sizes["median"] == pytest.approx(abs(seen.item()))


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
    victims = [("alike", 0, Brightness(1.0)), ("contrary", 0, Brightness(-1.0))]
    table = black_box(Brightness(4.0), victims, images, labels, [0.2], 2)
    values = table.set_index(["method", "network"])["value"]
    assert values["FGSM", "alike"] == values["BIM", "alike"] == 0.0
    assert values["FGSM", "contrary"] == 1.0


def test_each_gradient_is_reported_under_its_loss_and_the_source_of_black_box_attacks_is_spared() -> None:
    """The capsules' own loss has no gradient, cross-entropy has; of the other network both are the same. Images that
    are shown are attacked through cross-entropy, by the epsilon nearest to 0.1 and by the largest.
    """
    study = AttackParams(capsules="capsules", cnn="cnn", images=4, epsilons=[0.0, 0.1, 0.3], steps=2)
    dataset = replace(squares(), labels=squares().labels % 2)
    found = outcome([Flat()], [Brightness(), Brightness()], dataset, study, 10, "attacks")
    without = {
        loss: [found.numbers[loss][network]["without"]["mean"] for network in ("capsules", "cnn")]
        for loss in ("gradient", "cross_entropy_gradient")
    }
    assert without == {"gradient": [1.0, 0.0], "cross_entropy_gradient": [0.0, 0.0]}
    victims = found.table[found.table["kind"] == "black-box"][["network", "replica"]].drop_duplicates()
    assert victims.to_numpy().tolist() == [["capsules", 0], ["cnn", 1]]
    shown = found.arrays
    changes = {name: float(abs(shown[name] - shown["capsules-0"]).max()) for name in shown if "capsules" in name}
    assert changes == pytest.approx({"capsules-0": 0, "capsules-0.1": 0.1, "capsules-0.3": 0.3})


class Peak(Brightness):
    """A loss with a maximum at 0.55: an attack that goes on by its first gradient overshoots it."""

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        return images.mean((1, 2, 3)).unsqueeze(1).expand(-1, 2)

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        return -(scores[:, 0] - 0.55).square()


def test_the_iterative_method_takes_the_gradient_anew_at_every_step() -> None:
    images, labels = torch.full((1, 1, 4, 4), 0.5), torch.tensor([1])
    start = gradient(Peak(), images, labels)
    for given in (None, start):
        found = attacked(Peak(), images, labels, 0.4, 4, start=given)  # up to 0.6, back, up to 0.6, back
        torch.testing.assert_close(found, images)
