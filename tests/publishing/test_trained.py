"""Trained models outside the pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo
from small import SIZE, small_run, squares, training

from pipeline.learning.runs import save_run
from pipeline.learning.train import Task, train
from pipeline.publishing.trained import LoadingError, load_trained, read_images
from pipeline.systems import Run, build_model
from pipeline.systems.capsnet.settings import CapsNetRun

CPU = torch.device("cpu")


def trained_in(folder: Path, variant: str, size: int = SIZE) -> tuple[Path, Run]:
    """The folder and settings of a run, trained for one epoch."""
    run = small_run(variant, training=training(epochs=1).model_dump())
    data = squares()
    found = train(
        Task(
            lambda: build_model(run, size),
            run.training,
            run.augmentation,
            data.part("train"),
            data.part("validation"),
        ),
        run.seeds,
        CPU,
    )
    save_run(folder / "mine", "mine", run, size, "0123", "89ab", found)
    return folder / "mine", run


def test_models_come_back_with_their_own_settings(tmp_path: Path) -> None:
    folder, run = trained_in(tmp_path, "vae")
    loaded = load_trained(folder)
    assert (loaded.name, loaded.settings, loaded.image_size, loaded.channels) == ("mine", run, SIZE, 1)
    assert len(loaded.models) == 2
    features = loaded.features(torch.rand(3, 1, SIZE, SIZE))
    assert [each["mu_sigma"].shape[0] for each in features] == [3, 3]
    assert not loaded.classifies
    with pytest.raises(LoadingError, match="does not classify"):
        loaded.scores(torch.rand(3, 1, SIZE, SIZE))


def test_many_images_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = trained_in(tmp_path, "capsnet")
    loaded, images = load_trained(folder), torch.rand(5, 1, SIZE, SIZE)
    scores, features = loaded.scores(images), loaded.features(images)
    monkeypatch.setattr("pipeline.publishing.trained._AT_ONCE", 2)
    torch.testing.assert_close(loaded.scores(images), scores)
    for found, whole in zip(loaded.features(images), features, strict=True):
        assert found.keys() == whole.keys()
        for name in found:
            torch.testing.assert_close(found[name], whole[name])


def test_capsnet_scores_classes_by_length(tmp_path: Path) -> None:
    folder, run = trained_in(tmp_path, "capsnet")
    assert isinstance(run, CapsNetRun)
    loaded, images = load_trained(folder), torch.rand(3, 1, SIZE, SIZE)
    assert loaded.classifies
    lengths = [
        each["class_capsules"].unflatten(1, (run.model.classes, -1)).norm(dim=-1) for each in loaded.features(images)
    ]
    torch.testing.assert_close(loaded.scores(images), torch.stack(lengths).mean(0))


def test_a_missing_run_and_a_damaged_summary_are_named(tmp_path: Path) -> None:
    with pytest.raises(LoadingError, match="dvc pull -r published models/mine"):
        load_trained(tmp_path / "models" / "mine")
    folder, _ = trained_in(tmp_path, "vae")
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text.replace('"vae"', '"other"'))
    with pytest.raises(LoadingError, match="does not know"):
        load_trained(folder)
    for damaged in (text[:50], "[" * 100_000):
        (folder / "model.json").write_text(damaged)
        with pytest.raises(LoadingError, match="is damaged"):
            load_trained(folder)


def test_pictures_are_turned_grey_and_resized(tmp_path: Path) -> None:
    paths = []
    for index, colour in enumerate([(255, 255, 255), (0, 0, 0), (255, 0, 0), (0, 255, 0)]):
        paths.append(tmp_path / f"{index}.png")
        Image.new("RGB", (20, 20), colour).save(paths[-1])
    images = read_images(paths, 2, 8)
    assert images.shape == (2, 2, 8, 8)
    assert (images[0, 0] == 1).all()
    assert (images[0, 1] == 0).all()
    assert (images[1, 0] == images[1, 0, 0, 0]).all()
    with pytest.raises(LoadingError, match="3 pictures, but this network takes 2 for each image"):
        read_images(paths[:3], 2, 8)
    colours = read_images(paths, 3, 8)
    assert colours.shape == (4, 3, 8, 8)
    assert colours[:, :, 4, 4].tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0]]
    broken = tmp_path / "broken.png"
    Image.new("L", (20, 30)).save(broken)
    with pytest.raises(LoadingError, match=r"broken\.png has 20x30 pixels: cut a square out of it"):
        read_images([broken], 1, 8)
    broken.write_bytes(paths[0].read_bytes()[:30])
    with pytest.raises(LoadingError, match=r"cannot read .*broken\.png"):
        read_images([broken], 1, 8)
    text = PngInfo()
    text.add_text("comment", "x" * (2 << 20), zip=True)
    Image.new("L", (8, 8)).save(broken, pnginfo=text)
    with pytest.raises(LoadingError, match=r"cannot read .*broken\.png: Decompressed data too large"):
        read_images([broken], 1, 8)


def test_pictures_are_read_as_own_images_are(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    Image.fromarray(np.full((8, 8), 0x3300, np.uint16)).save(path)
    assert (read_images([path], 1, 8) == 0.2).all(), "16 bits"
    Image.new("LA", (8, 8), (255, 0)).save(path)
    assert (read_images([path], 1, 8) == 0).all(), "transparent"
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 3
    Image.fromarray(np.repeat(np.array([[0], [255]], np.uint8), 2, axis=1)).save(path, exif=turned)
    assert read_images([path], 1, 2)[0, 0].tolist() == [[1, 1], [0, 0]], "upside down"


def test_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    np.save(path, np.full((3, 1, 8, 8), 51, np.uint8))
    assert (read_images([path], 1, 8) == 0.2).all()
    for wrong in (np.zeros((3, 1, 8, 9), np.uint8), np.zeros((3, 1, 8, 8))):
        np.save(path, wrong)
        with pytest.raises(LoadingError, match="give uint8"):
            read_images([path], 1, 8)
    with path.open("wb") as file:
        np.savez(file, images=np.zeros((3, 1, 8, 8), np.uint8))
    with pytest.raises(LoadingError, match="cannot read"):
        read_images([path], 1, 8)
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(LoadingError, match="cannot read"):
        read_images([path], 1, 8)
