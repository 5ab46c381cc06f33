"""Trained models outside the pipeline."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small import SIZE, small_run, squares, training

from pipeline.cli import load
from pipeline.data.datasets import save_dataset
from pipeline.errors import UserError
from pipeline.layout import dataset_path
from pipeline.learning.runs import save_run
from pipeline.learning.train import Task, train
from pipeline.models import load_trained, read_images
from pipeline.systems import Run, build_model


def trained_in(folder: Path, variant: str) -> tuple[Path, Run]:
    """The folder and settings of a run, trained for one epoch."""
    run, data = small_run(variant, training=training(epochs=1).model_dump()), squares()
    parts = data.part("train"), data.part("validation")
    task = Task(lambda: build_model(run, SIZE), run.training, run.augmentation, *parts)
    save_run(folder / "mine", "mine", run, SIZE, "0123", "89ab", train(task, run.seeds, torch.device("cpu")))
    return folder / "mine", run


def test_models_come_back_with_their_own_settings(tmp_path: Path) -> None:
    folder, run = trained_in(tmp_path, "vae")
    loaded = load_trained(folder)
    assert (loaded.name, loaded.settings, loaded.image_size) == ("mine", run, SIZE)
    features = loaded.features(torch.rand(3, 1, SIZE, SIZE))
    assert [each["mu_sigma"].shape[0] for each in features] == [3, 3], "two seeds"
    with pytest.raises(UserError, match="does not classify"):
        loaded.scores(torch.rand(3, 1, SIZE, SIZE))
    with pytest.raises(UserError, match="models/yours has no trained run: run `dvc repro train@yours`"):
        load_trained(tmp_path / "models" / "yours")
    with pytest.raises(UserError, match="/yours has no trained run"):
        load_trained(Path("/yours"))
    (tmp_path / "published" / "cards").mkdir(parents=True)
    (tmp_path / "published" / "cards" / "yours.md").touch()
    with pytest.raises(UserError, match="`dvc pull -r published models/yours`"):
        load_trained(tmp_path / "models" / "yours")
    (folder / "model.json").write_text((folder / "model.json").read_text()[:50])
    with pytest.raises(UserError, match=r"model\.json is damaged"):
        load_trained(folder)


def test_capsnet_scores_classes_by_length_and_images_do_not_depend_on_each_other(tmp_path: Path) -> None:
    folder, run = trained_in(tmp_path, "capsnet")
    loaded, images = load_trained(folder), torch.rand(251, 1, SIZE, SIZE)
    classes = [each["class_capsules"].unflatten(1, (run.model.classes, -1)) for each in loaded.features(images)]
    scores = loaded.scores(images)
    torch.testing.assert_close(scores, torch.stack(classes).norm(dim=-1).mean(0))
    torch.testing.assert_close(scores[249:], loaded.scores(images[249:]))


def test_a_class_is_called_by_its_name_where_the_data_set_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").touch()
    trained_in(tmp_path / "models", "cnn")
    np.save("images.npy", squares().images[:3])

    def said() -> list[tuple[str, ...]]:
        load("mine", [Path("images.npy")])
        printed = capsys.readouterr().out
        return re.findall(r"^image \d: class (\d)(?:, (\w+))? \(score", printed, re.MULTILINE)

    assert [name for _, name in said()] == ["", "", ""]
    save_dataset(dataset_path(tmp_path, "squares"), squares())
    assert [name for _, name in said()] == ["abc"[int(label)] for label, _ in said()]


def test_pictures_are_turned_grey_and_resized(tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(4)]
    for path, colour in zip(paths, ["white", "black", "red", "lime"], strict=True):
        Image.new("RGB", (20, 20), colour).save(path)
    images = read_images(paths, 2, 8)
    assert images.shape == (2, 2, 8, 8)
    assert images[0, :, 0, 0].tolist() == [1, 0]
    with pytest.raises(UserError, match="3 pictures were given, but this network takes 2 for each image"):
        read_images(paths[:3], 2, 8)
    colours = read_images(paths, 3, 8)
    assert colours[:, :, 4, 4].tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    np.save(path, np.full((3, 1, 8, 8), 51, np.uint8))
    assert (read_images([path], 1, 8) == 0.2).all()
    for wrong in (np.zeros((3, 1, 8, 9), np.uint8), np.zeros((3, 1, 8, 8)), np.zeros((0, 1, 8, 8), np.uint8)):
        np.save(path, wrong)
        with pytest.raises(UserError, match="give uint8"):
            read_images([path], 1, 8)
