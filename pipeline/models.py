"""Loads trained models and images, and computes predictions and features, for use outside the pipeline."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from pydantic import TypeAdapter
from torch import Tensor

from pipeline.classification.classifier import Classifier
from pipeline.data.datasets import reading
from pipeline.data.own_images import upright_on_black
from pipeline.errors import UserError
from pipeline.layers.images import centre_crop
from pipeline.learning.model import Model
from pipeline.learning.runs import SUMMARY, load_run
from pipeline.learning.settings import CropParams
from pipeline.systems import Run, build_model
from pipeline.systems.capsnet.model.capsnet import CapsNet

_AT_ONCE = 250  # images in a batch; it is limited because matrix capsules need about 1 MB of memory per image


@dataclass(frozen=True)
class TrainedRun:
    """The models of a trained run (one per seed, on the CPU, in evaluation mode) and the settings of their training.
    `image_size` is the side of the images in pixels, before any crop.
    """

    name: str
    settings: Run
    image_size: int
    models: Sequence[Model]

    @torch.no_grad()
    def scores(self, images: Tensor) -> Tensor:
        """Class scores `[N, classes]` of images `[N, C, S, S]` in [0, 1], averaged over seeds. Raises `UserError` if
        the run is not a classifier.
        """
        scores = [[self._scores(model, batch) for model in self.models] for batch in self._batches(images)]
        return torch.cat([torch.stack(each).mean(0) for each in scores])

    def _scores(self, model: Model, seen: Tensor) -> Tensor:
        if isinstance(model, Classifier):
            return model.scores(seen)
        if isinstance(model, CapsNet):
            return model.encode(seen).norm(dim=-1)  # the length of a class's capsule is the class's score
        raise UserError(f"run '{self.name}' ({self.settings.variant}) does not classify: use its features")

    @torch.no_grad()
    def features(self, images: Tensor) -> list[dict[str, Tensor]]:
        """Features `[N, d]` by name, of images `[N, C, S, S]` in [0, 1]: for each seed a dict, which may be empty."""
        found = []
        for model in self.models:
            batches = [model.features(batch) for batch in self._batches(images)]
            found.append({name: torch.cat([batch[name] for batch in batches]) for name in batches[0]})
        return found

    def _batches(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the images in batches, cropped to their centre if the models were trained on crops."""
        augmentation = self.settings.augmentation
        for batch in images.split(_AT_ONCE):
            yield centre_crop(batch, augmentation.crop) if isinstance(augmentation, CropParams) else batch


def load_trained(folder: Path) -> TrainedRun:
    """Load the models of a run from `folder`, such as `models/vae-digits`. The run's settings are read from the folder,
    so the current profile has no influence. Raises `UserError` if `folder` has no trained run, if the settings are not
    valid in this version of the code, or if weights are missing or damaged.
    """
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        settings: Run = TypeAdapter(Run).validate_python(summary["settings"])
        name, size = str(summary["run"]), int(summary["image_size"])
    except FileNotFoundError:
        command = f"dvc repro train@{folder.name}"
        if (folder.resolve().parent.parent / "published" / "cards" / f"{folder.name}.md").exists():
            command = f"dvc pull -r published {folder.parent.name}/{folder.name}"
        raise UserError(
            f"{folder} has no trained run: run `{command}` in a profile that has it (`python -m pipeline profile`)"
        ) from None
    # ValueError: the JSON is damaged, or the settings are not valid in this version of the code
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"{folder / SUMMARY} is damaged, or of another version of the code"
        raise UserError(f"{what}: `dvc pull` it again, or use that version. {error}") from None
    return TrainedRun(name, settings, size, load_run(build_model, folder, name, settings, size, torch.device("cpu")))


def read_images(paths: Sequence[Path], channels: int, size: int) -> Tensor:
    """Read images as `[N, channels, size, size]` in [0, 1]. `channels` is 1 (grey), 2 (stereo pairs) or 3 (colour).

    `paths` is one `.npy` file with uint8 images `[N, channels, size, size]`, or a list of picture files. A colour
    image is one file. Any other image is one grey file per channel, in the order of the channels. Pictures must be
    square. An object must have the same relative size and place in a picture as in the training images. Pictures are
    resized to `size`. Raises `UserError` if a file cannot be read or is not as described here.
    """
    if [path.suffix for path in paths] == [".npy"]:
        return _array(paths[0], (channels, size, size))
    if len(paths) % (files := pictures_of_an_image(channels)):
        raise UserError(f"{len(paths)} pictures were given, but this network takes {files} for each image")
    pictures = [_picture(path, size, channels // files) for path in paths]
    return torch.stack(pictures).view(-1, channels, size, size)


def pictures_of_an_image(channels: int) -> int:
    """Number of picture files per image: one for a colour image, otherwise one per channel."""
    return 1 if channels == 3 else channels


def _array(path: Path, shape: tuple[int, int, int]) -> Tensor:
    with reading(path), path.open("rb") as file:
        images = np.load(file, allow_pickle=False)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != shape or not len(images):
        needed = f"uint8 [N, {', '.join(map(str, shape))}]"
        raise UserError(f"{path} does not have images as this network needs them: give {needed}")
    return torch.from_numpy(images).float() / 255


def _picture(path: Path, size: int, channels: int) -> Tensor:
    """Read a picture as `[channels, size, size]` in [0, 1], turned by its EXIF data. Transparent areas are black."""
    with reading(path), Image.open(path) as picture:
        plain = upright_on_black(picture, channels)
        if plain.width != plain.height:
            raise UserError(f"{path} is not square: cut a square out of it, framed like the training images")
        resized = plain.resize((size, size), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized, dtype=np.float32).reshape(size, size, channels)
    return torch.from_numpy(pixels.transpose(2, 0, 1) / 255)
