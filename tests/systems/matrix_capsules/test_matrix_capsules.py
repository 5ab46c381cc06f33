"""The network of document 004: its sizes, layers, norms and losses; the one beside it; and what ablations train."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pytest
import torch
from em_loop import network
from pydantic import ValidationError
from small import SMALL_CNN, SMALL_MATRIX_CAPSULES, small_run, squares, training
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.layers.class_losses import spread_loss
from pipeline.layers.images import standardise
from pipeline.learning.model import count_parameters
from pipeline.learning.runs import load_run, save_run
from pipeline.learning.train import Task, augment, train
from pipeline.systems import build_model
from pipeline.systems.cnn.model.cnn import CNN
from pipeline.systems.cnn.settings import CNNModelParams
from pipeline.systems.matrix_capsules.model import em_routing, matrix_capsules
from pipeline.systems.matrix_capsules.model.matrix_capsules import BatchNorm, MatrixCapsules, measure_statistics
from pipeline.systems.matrix_capsules.studies import ablation
from pipeline.systems.matrix_capsules.studies.ablation import AblationParams, ablated


@pytest.mark.parametrize(
    ("sizes", "thousands"), [({}, 317), ({"channels": 64, "primary_types": 8, "types": [16, 16]}, 69)]
)
def test_networks_have_the_published_sizes(sizes: dict[str, Any], thousands: int) -> None:
    """310 and 68 thousand parameters, the document says; layers of 14x14, 6x6 and 4x4 positions (Figure 1)."""
    published = {
        "views": 2, "channels": 32, "kernel": 5, "primary_types": 32, "types": [32, 32], "capsule_kernel": 3,
        "capsule_strides": [2, 1], "pose_side": 4, "classes": 5,
    }  # fmt: skip
    model = network(32, **{**published, **sizes})
    assert round(count_parameters(model) / 1000) == thousands
    layers = model.capsules(torch.rand(1, 2, 32, 32))
    assert [poses.shape[1] for poses, _ in layers] == [14 * 14, 6 * 6, 4 * 4, 1]
    assert layers[-1][0].shape == (1, 1, 5, 16)


def test_the_convolutional_network_has_the_published_size() -> None:
    big = CNNModelParams(views=2, channels=[32, 64], kernel=5, hidden=1024, dropout=0.5, mixup=0.0, classes=5)
    assert count_parameters(CNN(big, 32)) == pytest.approx(4.2e6, rel=0.02)


def test_matrices_are_transformed_from_the_right_and_vectors_whole() -> None:
    for pose, inner in (("matrix", 2), ("vector", 4)):
        layer = network(pose=pose).routed[0]
        assert layer.transformations.shape == (4, 2, inner, 2, inner)
        child = torch.randn(4)
        vote = torch.einsum("i,kcidj->kcdj", child, layer.full_transformations())
        W = layer.transformations[1, 0, :, 1]
        expected = (child.view(2, 2) @ W).flatten() if pose == "matrix" else child @ W
        torch.testing.assert_close(vote[1, 0, 1], expected)


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 0.1),
        ({"coordinate_addition": False}, 0.0),
        # In sds of votes at the variance floor, of which a step counts as many at every floor.
        ({"variance_floor": 5e-4, "coordinate_scale": 1.8, "coordinate_unit": "floor_sd"}, 1.8 * 5e-4**0.5),
        ({"variance_floor": 0.1, "coordinate_scale": 1.8, "coordinate_unit": "floor_sd"}, 1.8 * 0.1**0.5),
    ],
)
def test_class_capsules_share_transformations_and_see_positions(changes: dict[str, Any], step: float) -> None:
    """Coordinates stand in the first two elements of the right-hand column, from the middle, in steps of the scale."""
    last = network(**changes).routed[-1]
    assert last.transformations.shape[0] == 1
    votes = last.votes((torch.zeros(1, 9, 2, 4), torch.ones(1, 9, 2)))[0, 0]
    matrices = votes.unflatten(1, (3, 3, 2))[1, :, :, 0].unflatten(-1, (2, 2))  # (row, column, 2, 2)
    along = step * torch.tensor([-1.0, 0.0, 1.0])
    torch.testing.assert_close(matrices[..., 0, 1], along[:, None].expand(3, 3))
    torch.testing.assert_close(matrices[..., 1, 1], along.expand(3, 3))
    assert (matrices[..., :, 0] == 0).all()


def test_beta_a_in_another_unit_is_the_same_network_that_learns_it_faster() -> None:
    images, labels = torch.rand(8, 1, 10, 10), torch.arange(8) % 3
    start = {"sd": 0.5, "beta_a": 3.0, "beta_u": 0.5}
    losses, gradients = [], []
    for unit in (1.0, 100.0):
        model = network(beta_a_unit=unit, saving=None, convolutional=start, last=start)
        layer = model.routed[0]
        torch.testing.assert_close(layer.beta_a.detach() * unit, torch.full((2,), 3.0))
        torch.testing.assert_close(layer.betas()[0].detach(), torch.full((2,), 3.0))
        loss, _ = model(images, torch.zeros(8, 0), torch.tensor(0.0), labels)
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, layer.beta_a)[0])
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(gradients[1], 100 * gradients[0], rtol=1e-4, atol=0)


def test_balanced_betas_leave_the_average_capsule_even_and_reward_what_is_assigned() -> None:
    images = torch.rand(20, 1, 10, 10, generator=torch.Generator().manual_seed(0))
    for saving in (8.0, None):
        model = network(saving=saving)
        if model.beginning_images(0):
            model.begin_epoch(images)
        below = model.primary(model.first(standardise(images)).relu())
        for layer in model.routed:
            last = layer.steps(below)[-1]
            log_sd = (-0.5 * (-2 * last.parents.quadratic).log()).sum(-1)
            each = 4 * layer.beta_u + log_sd  # nats, of a whole vote
            even = (last.moments.mass * each).mean((0, 1)) - layer.beta_a
            # Nearly: assignments were made with the betas before.
            assert bool((each.mean((0, 1)) + 8).abs().max() < 0.5) == (saving is not None)
            assert bool(even.mean().abs() < 1) == (saving is not None)
            below = layer(below)
    assert [network(saving=8.0).beginning_images(epoch) > 0 for epoch in (0, 1)] == [True, False]


def test_the_margin_grows_with_the_epochs_and_is_full_in_validation() -> None:
    model = network()
    scores, labels = torch.rand(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    for epoch, margin in ((0.0, 0.2 + 0.7 / (1 + torch.e**4)), (0.8, 0.55), (100.0, 0.2 + 0.7 / (1 + torch.e**-10))):
        found = model.losses(scores, labels, torch.tensor(epoch))
        torch.testing.assert_close(found, spread_loss(scores, labels, margin))
    validated = model.eval().losses(scores, labels, torch.tensor(0.0))
    torch.testing.assert_close(validated, spread_loss(scores, labels, 0.9))


@pytest.mark.parametrize("loss", ["spread", "margin", "cross-entropy"])
@pytest.mark.parametrize(
    "changes", [{}, {"pose": "vector"}, {"activation": "mixing"}, {"activation": "bayes", "saving": None}]
)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any], loss: str) -> None:
    model = network(loss=loss, weight_decay=0.0, **changes)
    images, labels = torch.rand(8, 1, 10, 10), torch.arange(8) % 3
    value, metrics = model(images, model.draw_noise((8,), torch.Generator()), torch.tensor(5.0), labels)
    gradients = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    zero = {
        name
        for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True)
        if gradient is None or not gradient.abs().max() > 0
    }
    betas = {f"routed.{i}.{beta}" for i in range(2) for beta in ("beta_a", "beta_u")}
    assert zero == (betas if changes.get("activation") == "mixing" else set())  # shares have no use for them
    assert 0 <= metrics["accuracy"] <= 1


def test_early_training_routes_as_a_network_with_early_iterations_does_and_validation_never() -> None:
    images, noise, labels = torch.rand(6, 1, 10, 10), torch.empty(6, 0), torch.tensor([0, 1, 2, 0, 1, 2])
    grows = network(iterations=3, early_iterations=1, early_epochs=2.0)
    fixed = {number: network(iterations=number) for number in (1, 3)}

    def loss(model: MatrixCapsules, epoch: float) -> torch.Tensor:
        model.load_state_dict(grows.state_dict())
        return model(images, noise, torch.tensor(epoch), labels)[0]

    for epoch, number in ((0.0, 1), (1.99, 1), (2.0, 3), (0.5, 1)):
        torch.testing.assert_close(loss(grows, epoch), loss(fixed[number], epoch))
    assert not torch.allclose(loss(fixed[1], 0.0), loss(fixed[3], 0.0))
    for model in (grows, *fixed.values()):
        model.eval()
    torch.testing.assert_close(loss(grows, 0.0), loss(fixed[3], 0.0))


def test_betas_are_balanced_with_the_early_iterations_if_there_are_early_epochs() -> None:
    images, balanced = torch.rand(20, 1, 10, 10), {}
    start = network(saving=8.0, iterations=3).state_dict()
    for name, iterations in (
        ("early", (3, 1, 2.0)),
        ("not early", (3, 1, 0.0)),
        ("one", (1, 1, 0.0)),
        ("three", (3, 3, 0.0)),
    ):
        changes = dict(zip(("iterations", "early_iterations", "early_epochs"), iterations, strict=True))
        model = network(saving=8.0, **changes)
        model.load_state_dict(start)
        model.begin_epoch(images)
        balanced[name] = torch.cat([each.detach() for layer in model.routed for each in (layer.beta_a, layer.beta_u)])
    torch.testing.assert_close(balanced["early"], balanced["one"])
    torch.testing.assert_close(balanced["not early"], balanced["three"])
    assert not torch.allclose(balanced["one"], balanced["three"])


def test_weight_decay_spares_biases_and_betas() -> None:
    model = network(weight_decay=0.1)
    matrices = [p for name, p in model.named_parameters() if "beta" not in name and "bias" not in name]
    assert len(matrices) == 5
    torch.testing.assert_close(model.penalty(), 0.05 * sum(p.square().sum() for p in matrices))


def test_dropout_is_in_training_alone_and_keeps_the_mean() -> None:
    model = CNN(CNNModelParams.model_validate(SMALL_CNN), 10)
    image = torch.rand(1, 1, 10, 10).expand(4000, -1, -1, -1)
    noise = model.draw_noise((4000,), torch.Generator().manual_seed(1))
    assert noise.shape == (4000, 6)
    dropped, whole = model.scores(image, noise), model.eval().scores(image, noise)
    assert dropped.std(0).min() > 1e-3
    torch.testing.assert_close(dropped.mean(0), whole[0], atol=0.02, rtol=0)
    assert whole.std(0).max() < 1e-6


def test_what_does_not_fit_is_refused() -> None:
    """Of images of another size, the compiled kernel would read beyond the children that there are."""
    with pytest.raises(UserError, match="exceed images of 2 pixels"):
        network(2)
    with pytest.raises(UserError, match="see more than the 4x4 below"):
        network(capsule_kernel=5)
    for size in (9, 14):
        with pytest.raises(ValueError, match="the network is for 10"):
            network(10).scores(torch.rand(2, 2, size, size))


def test_activations_that_have_no_use_for_betas_are_learnt_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the form that a GPU uses, where what is not used has no gradient."""
    monkeypatch.setattr(matrix_capsules, "route", em_routing._last)
    run, data = small_run("matrix_capsules", model={**SMALL_MATRIX_CAPSULES, "activation": "mixing"}), squares()
    parts = data.part("train"), data.part("validation")
    task = Task(lambda: build_model(run, 10), training(epochs=1), run.augmentation, *parts)
    history = train(task, run.seeds[:1], torch.device("cpu")).history
    assert history["train_gradient_norm"].gt(0).all()


def test_an_ablation_changes_its_settings_and_stretches_the_margins_growth() -> None:
    run = small_run("matrix_capsules", training=training(epochs=4).model_dump())
    conditions: dict[str, Any] = {"plain": {}, "both": {"iterations": 5, "pose": "vector"}}
    study = AblationParams(run="a", epochs=6, replicas=3, conditions=conditions)
    found = ablated(run, study, "both")
    changes = {"iterations": 5, "pose": "vector", "margin_epochs": pytest.approx(1.5 * run.model.margin_epochs)}
    assert found.model.model_dump() == {**run.model.model_dump(), **changes}
    assert ablated(run, study, "plain").model == run.with_epochs(6).model
    assert (found.replicas, found.training.epochs, found.dataset) == (3, 6, run.dataset)


def test_an_ablation_has_the_accuracies_of_the_epochs_that_are_kept() -> None:
    run, images = small_run("matrix_capsules"), squares()
    history = pd.DataFrame({"replica": [0, 0, 1, 1], "epoch": [1, 2, 1, 2], "train_accuracy": [0.1, 0.2, 0.3, 0.4]})
    trained = SimpleNamespace(
        history=history.eval("validation_accuracy = train_accuracy / 2"), best_epoch=[1, 2], seconds=1
    )
    study = AblationParams(run="a", epochs=2, replicas=2, conditions={"plain": {}})
    context = MagicMock(settings=study, params=SimpleNamespace(runs={"a": run}))
    context.dataset.return_value = images
    context.train.return_value = trained, [build_model(run, images.images.shape[-1])] * 2
    found = ablation.measure(context).numbers["condition"]["plain"]
    assert found["train"]["accuracy"]["mean"] == pytest.approx(0.25)
    assert found["validation"]["accuracy"]["mean"] == pytest.approx(0.125)
    assert found["best_epoch"]["mean"] == 1.5


CPU = torch.device("cpu")
BAYES = {"alpha0": 1.0, "kappa0": 1.0, "nu0": 5.0, "psi0": 1.0, "precisions": "wishart", "shares_of": "position"}
VARIATIONAL: dict[str, Any] = {
    "activation": "bayes", "bayes": BAYES, "batch_norm": True, "saving": None, "loss": "softmax", "types": [3, 2],
    "capsule_strides": [1, 1], "iterations": 3,
}  # fmt: skip
variational = partial(network, **VARIATIONAL)


def images(count: int = 12) -> Tensor:
    return torch.rand(count, 1, 10, 10, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("axis", "shape"), [(1, (6, 3, 4, 4)), (2, (6, 5, 3, 4)), (2, (6, 5, 3))])
@pytest.mark.parametrize("learnt", [True, False])
def test_it_does_what_torchs_own_does(axis: int, shape: tuple[int, ...], learnt: bool) -> None:
    """In training; and in evaluation, once the statistics are the cumulative ones that torch would have."""
    ours, theirs = BatchNorm(3, axis, learnt), nn.BatchNorm1d(3, affine=learnt, momentum=None)
    learned = [[each for each in module.parameters() if each.requires_grad] for module in (ours, theirs)]
    for pair, values in zip(zip(*learned, strict=True), ([1.0, 2.0, -0.5], [0.0, 3.0, 1.0]), strict=False):
        for parameter in pair:  # the scale, then the shift, if they are learnt
            parameter.data = torch.tensor(values)
    batches = torch.randn(4, *shape) * torch.tensor([1.0, 3.0, 2.0, 5.0]).view(-1, *[1] * len(shape)) + 2

    def as_theirs(x: Tensor) -> Tensor:
        return theirs(x.movedim(axis, 1).flatten(2)).view(x.movedim(axis, 1).shape).movedim(1, axis)

    for batch in batches:
        torch.testing.assert_close(ours(batch), as_theirs(batch))
    measure_statistics(ours, ours, batches)
    assert ours.measured is None
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.variance, theirs.running_var)
    torch.testing.assert_close(ours(batches[0]), as_theirs(batches[0]))
    assert not ours.mean.requires_grad


def test_everything_that_a_layer_hands_on_is_normalised() -> None:
    model, shown = variational(), images()
    before = model.norm_first(model.first(shown))
    torch.testing.assert_close(before.mean((0, 2, 3)), torch.zeros(4), rtol=0, atol=1e-5)
    for poses, activations in model.capsules(shown):
        # Over images, positions and the numbers of a pose, by type.
        torch.testing.assert_close(poses.mean((0, 1, 3)), torch.zeros(poses.shape[2]), rtol=0, atol=1e-5)
        torch.testing.assert_close(poses.var((0, 1, 3), correction=0), torch.ones(poses.shape[2]), rtol=0.02, atol=0)
        logits = activations.logit()
        torch.testing.assert_close(logits.mean((0, 1)), torch.zeros(poses.shape[2]), rtol=0, atol=1e-4)
        assert ((logits.var((0, 1), correction=0) > 0.5) & (logits.var((0, 1), correction=0) < 1.01)).all()


def test_what_norms_take_away_is_not_learnt_and_all_else_is() -> None:
    model, shown, labels = variational(weight_decay=0.0), images(), torch.arange(12) % 3
    learnt = {name for name, value in model.named_parameters() if value.requires_grad}
    assert not [name for name in learnt if "bias" in name or "beta_a" in name or name.endswith((".mean", ".variance"))]
    assert count_parameters(model) == sum(dict(model.named_parameters())[name].numel() for name in learnt)
    loss, _ = model(shown, torch.zeros(12, 0), torch.tensor(0.0), labels)
    gradients = torch.autograd.grad(loss, [model.get_parameter(name) for name in learnt])
    assert all(gradient.abs().max() > 1e-7 for gradient in gradients)
    found = model.scores(shown)
    with torch.no_grad():
        model.routed[0].beta_a.add_(3.0)
    torch.testing.assert_close(model.scores(shown), found, rtol=1e-4, atol=1e-5)


def test_in_evaluation_an_image_is_judged_by_itself() -> None:
    model, shown = variational(), images()
    model.end_epoch(shown, 5)
    mean = model.norm_first.mean.clone()
    model.end_epoch(shown[:10], 5)
    torch.testing.assert_close(model.norm_first.mean, mean)  # the last two images are no whole batch
    model.end_epoch(shown, 6)
    model.eval()
    together = model.scores(shown)
    torch.testing.assert_close(model.scores(shown[3:4]), together[3:4], rtol=1e-4, atol=1e-5)
    model.train()
    assert (model.scores(shown[:6]) - together[:6]).abs().max() > 1e-3


@pytest.mark.parametrize("averaging", [0.0, 0.3])
def test_weights_that_are_kept_come_with_their_own_statistics(averaging: float, tmp_path: Path) -> None:
    """Measured on images of the epoch with the weights kept, averaged or not; they are saved with them."""
    # All images in one batch and in one view: what the best weights make of them does not depend on draws.
    run, data = small_run("matrix_capsules", model={**SMALL_MATRIX_CAPSULES, **VARIATIONAL}, replicas=1), squares()
    run = run.model_copy(update={"augmentation": run.augmentation.model_copy(update={"crop": 12})})
    settings = training(epochs=3, averaging=averaging, batch_size=36)
    parts = data.part("train"), data.part("validation")
    found = train(Task(lambda: build_model(run, 12), settings, run.augmentation, *parts), run.seeds, CPU)
    save_run(tmp_path, "vb", run, 12, "data", "code", found)
    (model,) = load_run(build_model, tmp_path, "vb", run, 12, CPU)
    assert isinstance(model, MatrixCapsules)
    stored = {name: value.clone() for name, value in model.state_dict().items()}
    shown = augment(torch.from_numpy(data.part("train")[0]), run.augmentation, torch.Generator())
    model.end_epoch(shown, 36)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(stored[name], value, rtol=1e-4, atol=1e-5)
    assert (stored["norm_first.mean"] != 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "mdl"}, "batch_norm needs activation: bayes"),
        ({"saving": 8.0}, "saving must be null"),
        ({"types": [3]}, "one stride for each layer"),
        ({"first_margin": 0.95}, r"must not exceed last_margin \(0\.9\)"),
        ({"bayes": {**BAYES, "nu0": 3.0}}, r"nu0 must exceed pose_side\^2 - 1 \(3\)"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        variational(**changes)


def test_the_softmax_of_activations() -> None:
    model, labels = variational(), torch.tensor([0, 2])
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.5, 1.0]])
    expected = -torch.stack([scores[0].softmax(0)[0].log(), scores[1].softmax(0)[2].log()])
    torch.testing.assert_close(model.losses(scores, labels, torch.tensor(0.0)), expected)
