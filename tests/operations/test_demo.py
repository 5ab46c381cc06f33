"""The demo: pictures of trained models in a fresh clone, whatever its profile and `dvc.lock`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pipeline.data.published import build_dataset
from pipeline.data.sources import fetch
from pipeline.models import load_trained
from pipeline.operations.demo import DIGITS, PARTS, ROUTING, WEIGHTS, demo, one_of_each
from pipeline.params import load_params
from pipeline.profiles import Profiles

ROOT = Path(__file__).parents[2]


def test_it_draws_both_pictures(tmp_path: Path) -> None:
    drawn = demo(ROOT, tmp_path / "pictures")
    assert [path.name for path in drawn] == ["parts.png", "routing.png"]
    for path in drawn:
        with Image.open(path) as picture:
            assert np.ptp(np.asarray(picture.convert("L"))) > 200


def test_the_digits_are_ones_that_the_models_were_not_trained_on(tmp_path: Path) -> None:
    params = load_params(Profiles(ROOT).params_path("quick"))
    assert params.datasets["digits"] == DIGITS
    for run in (PARTS, ROUTING):
        assert params.runs[run].dataset == "digits"
    fetch(DIGITS.source, tmp_path)
    images, labels = one_of_each(build_dataset("digits", DIGITS, tmp_path))
    assert labels.tolist() == list(range(10))
    scores = load_trained(ROOT / WEIGHTS / ROUTING).scores(torch.from_numpy(images).float() / 255)
    assert (scores.argmax(1).numpy() == labels).mean() >= 0.8
