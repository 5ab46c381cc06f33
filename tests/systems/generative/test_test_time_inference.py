"""What free-form inference gains, on a tiny model: tables as promised, and numbers that belong together."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from small import ENGINES, EVALUATE, SIZE, small_params

from pipeline.data.datasets import Dataset
from pipeline.probes.features import features
from pipeline.probes.generalisation import Labelled, clean_probe, fit_probe
from pipeline.systems.generative.experiments import test_time_inference as module
from pipeline.systems.generative.experiments.test_time_inference import (
    EXAMPLE_ANGLES,
    example_gains,
    optimisation_gains,
)
from pipeline.systems.generative.inference.free_form import optimise
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import OptimiseParams

CPU = torch.device("cpu")
STUDY = OptimiseParams.model_validate(
    small_params()["optimise"]["capsules"] | {"angles": [0.0, 180.0], "images": 10, "refit_images": 20}
)


def test_gains_by_engine_and_angle_and_along_the_way(capsules: GenerativeModel, dataset: Dataset) -> None:
    table, curve = optimisation_gains(capsules, dataset, STUDY, EVALUATE)
    table = table.set_index(["engine", "angle"])
    assert table.index.tolist() == [(engine, angle) for angle in (0.0, 180.0) for engine in ENGINES]
    assert (table["bound_after"] >= table["bound_before"]).all()
    # Every engine starts where the encoder ends.
    for _, of_angle in table.groupby(level="angle"):
        assert of_angle["bound_before"].nunique() == of_angle["accuracy_before"].nunique() == 1
    refit = [f"refit_accuracy_{when}" for when in ("before", "after", "once")]
    for column in (*refit, "accuracy_once", "refit_gain_error"):
        assert table[column]["gauss-newton"].between(0, 1).all()
        assert table[column][["l-bfgs", "adam"]].isna().all()
    rise = table["refit_accuracy_after"] - table["refit_accuracy_before"]
    assert table["refit_gain"].dropna().to_numpy() == pytest.approx(rise.dropna().to_numpy())
    kicked = table["bound_kicked"].dropna()
    assert kicked.index.tolist() == [("gauss-newton", 0.0)], "the chosen engine's, at the smallest angle"
    assert curve[(curve["engine"] == "adam") & (curve["angle"] == 180.0)]["round"].tolist() == [0, 1, 2, 3]
    # Upright images give the accuracy of the clean probe on the same first images, before anything is optimised.
    images, labels = dataset.part("test")
    probe = clean_probe(capsules, dataset, "t0", EVALUATE, CPU)
    expected = probe.score(features(capsules, images[:10], CPU)["t0"], labels[:10])
    assert table["accuracy_before"][("adam", 0.0)] == pytest.approx(expected)
    # Errors are those of paired images.
    pixels = torch.from_numpy(images[:10]).float() / 255
    found = optimise(capsules, pixels, STUDY.engines["adam"], torch.Generator().manual_seed(STUDY.seed))
    row, rise = table.loc[("adam", 0.0)], (found.bounds["after"] - found.bounds["before"]).numpy()
    fall = (found.errors["before"] - found.errors["after"]).numpy()
    for name, changes in (("bound_rise_error", rise), ("pixel_fall_error", fall)):
        assert row[name] == pytest.approx(changes.std(ddof=1) / math.sqrt(10), rel=1e-4)
    assert row["bound_fell"] == (rise < 0).mean()


def test_examples_show_one_image_turned_before_and_after(capsules: GenerativeModel, dataset: Dataset) -> None:
    found = example_gains(capsules, dataset, STUDY)
    assert found["arrangements_after"].shape == (len(EXAMPLE_ANGLES), SIZE, SIZE, 3)
    images, labels = dataset.part("test")
    np.testing.assert_allclose(found["images"][0], images[labels == 2][0, 0] / 255, atol=1e-5)
    error = {name: np.square(found["images"] - found[name]).sum() for name in ("before", "after")}
    assert error["after"] < error["before"]


def test_refit_probes_see_training_images_and_are_chosen_on_the_last_fifth_and_nothing_is_kicked_without_restarts(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = []

    def recorded(train: Labelled, validation: Labelled, strengths: list[float]) -> Any:
        fits.append((train, validation))
        return fit_probe(train, validation, strengths)

    monkeypatch.setattr(module, "fit_probe", recorded)
    engines = {"gauss-newton": STUDY.engines["gauss-newton"].model_copy(update={"restarts": 0})}
    study = STUDY.model_copy(update={"engines": engines, "angles": [0.0]})
    columns = optimisation_gains(capsules, dataset, study, EVALUATE)[0].columns
    assert not [name for name in columns if name.endswith(("_once", "_kicked"))]
    images, labels = (part[:20] for part in dataset.part("train"))
    t0 = features(capsules, images, CPU)["t0"]
    assert len(fits) == 2, "before and after"
    for part, rows in zip(fits[0], (slice(16), slice(16, None)), strict=True):
        np.testing.assert_allclose(part[0], t0[rows], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(part[1], labels[rows])
