"""Batch norm of matrix capsules with variational Bayes: where it is, and what evaluation normalises by."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import em_loop
import pytest
import torch
from pydantic import ValidationError
from small import SMALL_MATRIX_CAPSULES, small_run, squares, training
from torch import Tensor, nn

from pipeline.learning.model import count_parameters
from pipeline.learning.runs import load_run, save_run
from pipeline.learning.train import Task, augment, train
from pipeline.systems import build_model
from pipeline.systems.matrix_capsules.model.matrix_capsules import BatchNorm, MatrixCapsules, measure_statistics

CPU = torch.device("cpu")
BAYES = {"alpha0": 1.0, "kappa0": 1.0, "nu0": 5.0, "psi0": 1.0, "precisions": "wishart", "shares_of": "position"}
VARIATIONAL: dict[str, Any] = {
    "activation": "bayes", "bayes": BAYES, "batch_norm": True, "saving": None, "loss": "softmax", "types": [3, 2],
    "capsule_strides": [1, 1], "iterations": 3,
}  # fmt: skip
network = partial(em_loop.network, **VARIATIONAL)


def images(count: int = 12) -> Tensor:
    return torch.rand(count, 1, 10, 10, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("axis", "shape"), [(1, (6, 3, 4, 4)), (2, (6, 5, 3, 4)), (2, (6, 5, 3))])
@pytest.mark.parametrize("learnt", [True, False])
def test_it_does_what_torchs_own_does(axis: int, shape: tuple[int, ...], learnt: bool) -> None:
    """In training; and in evaluation, once the statistics are the cumulative ones that torch would have."""
    torch.manual_seed(0)
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
    model, shown = network(), images()
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
    model, shown, labels = network(weight_decay=0.0), images(), torch.arange(12) % 3
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
    model, shown = network(), images()
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
        ({"bayes": {**BAYES, "nu0": 3.0}}, r"nu0 must exceed pose_side\^2 - 1 \(3\)"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        network(**changes)


def test_the_softmax_of_activations() -> None:
    model, labels = network(), torch.tensor([0, 2])
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.5, 1.0]])
    expected = -torch.stack([scores[0].softmax(0)[0].log(), scores[1].softmax(0)[2].log()])
    torch.testing.assert_close(model.losses(scores, labels, torch.tensor(0.0)), expected)
