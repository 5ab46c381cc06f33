"""Pictures of two published models on ten digits, for new users who have not trained anything yet."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pooch
import torch
from numpy.typing import NDArray

from pipeline.data.datasets import Dataset
from pipeline.data.published import build_dataset
from pipeline.data.settings import DatasetParams
from pipeline.data.sources import fetch
from pipeline.drawing.films import RoutingFilm, strip
from pipeline.drawing.pictures import image_rows
from pipeline.drawing.style import to_bytes
from pipeline.files import write_bytes
from pipeline.layers.images import centre_crop
from pipeline.models import load_trained
from pipeline.systems.generative.evaluation.examples import arrange, reconstruct
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.routing import follow, iterations_of

WEIGHTS = Path("published", "demo")
"""Copies of the weights of two runs of the profile quick. Weights from DVC would depend on the `dvc.lock`."""
PARTS, ROUTING = "capsules-digits", "matrix-digits"
DIGITS = DatasetParams(source="digits", canvas=28, train=1200, validation=237, test=360, split_seed=0)
"""The data set that the two runs were trained on."""


@torch.no_grad()
def demo(root: Path, folder: Path) -> dict[Path, str]:
    """Draw pictures of both models on ten test digits into `folder`. Returns their descriptions by path."""
    capsules = cast(GenerativeModel, load_trained(root / WEIGHTS / PARTS).models[0])
    trained = load_trained(root / WEIGHTS / ROUTING)
    network = cast(MatrixCapsules, trained.models[0])
    pooch.get_logger().setLevel(logging.WARNING)
    with TemporaryDirectory() as raw:
        fetch(DIGITS.source, Path(raw))
        dataset = build_dataset("digits", DIGITS, Path(raw))
    images, labels = one_of_each(dataset)
    pixels = torch.from_numpy(images).float() / 255

    posterior = capsules.encode(pixels)
    rows: list[tuple[str, NDArray[Any]]] = [
        ("image", pixels[:, 0].numpy()),
        ("reconstruction", reconstruct(capsules, posterior).numpy()),
        ("its parts", arrange(capsules, posterior).numpy()),
    ]
    activations, taken = trained.scores(pixels).max(1)
    headings = [f"{dataset.classes[k]}\n{a:.2f}" for k, a in zip(taken.tolist(), activations.tolist(), strict=True)]

    iterations, two = iterations_of(network), slice(2, 4)
    seen = centre_crop(pixels[two], network.image_size)
    routed = cast(dict[str, NDArray[np.float32]], follow(network, iterations, seen).of(range(2)))
    film = RoutingFilm(dataset.classes, iterations, images[two, 0], labels[two], **routed)
    drawn = {
        folder / "parts.png": (
            image_rows(rows, headings, "matrix capsules see a\nits activation"),
            "ten test digits, as the generative model draws them, and its parts, a colour each",
        ),
        folder / "routing.png": (
            strip(film),
            "two of them in matrix capsules: which class each part is assigned to (bright: all of it), iteration by "
            "iteration; beside it, the class that is most active then, and its activation",
        ),
    }
    for path, (figure, _) in drawn.items():
        write_bytes(path, to_bytes(figure, "png"))
    return {path: words for path, (_, words) in drawn.items()}


def one_of_each(dataset: Dataset) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The first test image of each class, uint8 `[classes, C, S, S]`, and their labels."""
    images, labels = dataset.part("test")
    first = [int(np.flatnonzero(labels == label)[0]) for label in range(len(dataset.classes))]
    return images[first], labels[first]
