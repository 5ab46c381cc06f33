"""What is trained on shares of the images and on rotated ones, and the errors of the former."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small import EVALUATE, SIZE, small_run, squares, training

from pipeline.data.datasets import Dataset
from pipeline.probes.features import features
from pipeline.probes.generalisation import clean_probe
from pipeline.probes.sweep import swept
from pipeline.studies.data_efficiency import ITSELF, DataEfficiencyParams, errors_of, share_of, with_share
from pipeline.systems import build_model
from pipeline.systems.capsnet.model.capsnet import CapsNet
from pipeline.systems.cnn.model.cnn import CNN


def many(counts: tuple[int, ...]) -> Dataset:
    """So many images of each class, in a random order; half as many again for validation, and four to test."""
    labels = np.repeat(np.arange(len(counts)), counts)
    labels = np.random.default_rng(0).permutation(np.concatenate([labels, labels[::2], labels[:4]]))
    train, validation, test = np.split(np.arange(len(labels)), [sum(counts), len(labels) - 4])
    split = {"train": train, "validation": validation, "test": test}
    return Dataset("many", "many", np.zeros((len(labels), 1, 4, 4), np.uint8), labels, {}, split)


def test_a_share_has_as_many_of_each_class_and_a_smaller_one_is_part_of_it() -> None:
    dataset = many((200, 100, 60))
    train = dataset.labels[dataset.split["train"]]
    small, large = share_of(dataset, 0.1), share_of(dataset, 0.5)
    for part, share in ((small, 0.1), (large, 0.5)):
        found = dataset.labels[part.split["train"]]
        for label in range(3):
            assert (found == label).sum() == np.ceil(share * (train == label).sum())
    assert set(small.split["train"]) < set(large.split["train"]) < set(dataset.split["train"])
    assert (np.diff(small.split["train"]) > 0).all(), "the order of the split stays"
    assert (small.split["test"] == dataset.split["test"]).all()
    assert share_of(dataset, 1.0) is dataset
    # Validation shrinks, too, but not below ten images; one of each class is left to train on.
    assert len(large.split["validation"]) == pytest.approx(90, abs=3)
    least = share_of(dataset, 0.001).split
    assert 10 <= len(least["validation"]) <= 13
    assert len(least["train"]) == 3


def test_smaller_shares_take_as_many_steps() -> None:
    run = small_run("generative")
    batch = run.training.batch_size
    settings = DataEfficiencyParams(run="a", shares=[0.25, 1.0], epochs=3, replicas=1)
    # Of all images, an epoch has four batches and leaves one image out.
    whole = with_share(run, settings, 4 * batch + 1, 4 * batch + 1)
    assert (whole.training.epochs, whole.training.batch_size, whole.replicas) == (3, batch, 1)
    for images, size, epochs in ((batch, batch, 12), (batch - 1, batch - 1, 12), (3 * batch - 1, batch, 6)):
        share = with_share(run, settings, images, 4 * batch + 1)
        assert (share.training.batch_size, share.training.epochs, share.training.patience) == (size, epochs, epochs)


def test_shares_must_increase_and_trainings_must_end() -> None:
    with pytest.raises(ValidationError, match="shares must increase"):
        DataEfficiencyParams(run="a", shares=[1.0, 0.5], epochs=3, replicas=1)
    with pytest.raises(ValidationError, match="more than 10000 epochs"):
        DataEfficiencyParams(run="a", shares=[0.001], epochs=11, replicas=1)


@pytest.mark.parametrize(("variant", "way"), [("capsnet", ITSELF), ("cnn", ITSELF), ("vae", "mu_sigma")])
def test_a_classifier_classifies_itself_and_a_probe_the_others(variant: str, way: str) -> None:
    """A classifier of crops is shown the middle one."""
    run, dataset = small_run(variant), squares()
    torch.manual_seed(5)  # with these weights the CNN answers otherwise to other crops
    model, cpu = build_model(run, SIZE).eval(), torch.device("cpu")
    table = errors_of(model, run, dataset, EVALUATE, cpu)
    images, labels = dataset.part("test")
    pixels = torch.from_numpy(images).float() / 255
    if isinstance(model, CapsNet):
        answers = model.encode(pixels).norm(dim=-1).argmax(1).numpy()
    elif isinstance(model, CNN):
        answers = model.scores(pixels[..., 1:11, 1:11]).argmax(1).numpy()
    else:
        probe = clean_probe(model, dataset, "mu_sigma", EVALUATE, cpu)
        answers = probe.predict(features(model, images, cpu)["mu_sigma"])
    assert table.to_numpy().tolist() == [[way, pytest.approx((answers != labels).mean())]]


@pytest.mark.parametrize(("share", "epochs"), [(1.0, 7), (0.5, 4), (0.01, 1)])
def test_a_sweep_trains_for_its_share_of_the_runs_own_epochs(share: float, epochs: int) -> None:
    run = small_run("scae", training=training(epochs=7).model_dump(), replicas=5)
    assert [swept(run, 45, replicas, share).replicas for replicas in (3, 9)] == [3, 5]
    found = swept(run, 45, 5, share)
    assert found.training.epochs == epochs
    assert (found.replicas, found.augmentation.rotation, found.augmentation.shift) == (5, 45.0, 0.0)
    assert found.model == run.model
