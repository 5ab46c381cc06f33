"""What free-form inference gains, on a tiny model: tables as promised, and numbers that belong together."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small import ENGINES, EVALUATE, SIZE, small_params

from pipeline.data.datasets import Dataset
from pipeline.probes.features import features
from pipeline.probes.generalisation import clean_probe
from pipeline.systems.generative.experiments.test_time_inference import (
    EXAMPLE_ANGLES,
    _paired,
    example_gains,
    optimisation_gains,
)
from pipeline.systems.generative.inference.free_form import optimise
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.studies.optimise import OptimiseParams

CPU = torch.device("cpu")
STUDY = OptimiseParams.model_validate(
    small_params()["optimise"]["capsules"] | {"angles": [0.0, 180.0], "images": 10, "refit_images": 20}
)
ONE = STUDY.model_copy(update={"engines": {"adam": STUDY.engines["adam"]}, "chosen": "adam"})


def test_gains_by_engine_and_angle_and_along_the_way(capsules: GenerativeModel, dataset: Dataset) -> None:
    table, curve = optimisation_gains(capsules, dataset, STUDY, EVALUATE, CPU)
    table = table.set_index(["engine", "angle"])
    assert table.index.tolist() == [(engine, angle) for angle in (0.0, 180.0) for engine in ENGINES]
    assert (table["bound_after"] >= table["bound_before"]).all()
    assert (table["images"] == 10).all()
    assert (table[["bound_rise_error", "pixel_fall_error"]] > 0).all(axis=None)
    assert table["bound_fell"].between(0, 1).all()
    assert (table["evaluations"] > 0).all()
    accuracies = table[["accuracy_before", "accuracy_after"]]
    assert accuracies.apply(lambda column: column.between(0, 1)).all(axis=None)
    # Every engine starts where the encoder ends.
    for _, of_angle in table.groupby(level="angle"):
        assert of_angle["bound_before"].nunique() == of_angle["accuracy_before"].nunique() == 1
    for column in ("refit_accuracy_before", "refit_accuracy_after", "refit_accuracy_once", "accuracy_once"):
        assert table[column]["gauss-newton"].between(0, 1).all()
        assert table[column][["l-bfgs", "adam"]].isna().all()
    for column in ("refit_accuracy_kicked", "accuracy_kicked", "bound_kicked"):
        measured = table[column].dropna()
        assert measured.index.tolist() == [("gauss-newton", 0.0)], "the chosen engine's, at the smallest angle"
    assert set(curve.columns) == {"engine", "angle", "round", "evaluations", "seconds", "bound", "pixel_error"}
    assert curve[(curve["engine"] == "adam") & (curve["angle"] == 180.0)]["round"].tolist() == [0, 1, 2, 3]
    # Upright images give the accuracy of the clean probe on the same first images, before anything is optimised.
    images, labels = dataset.part("test")
    probe = clean_probe(capsules, dataset, "t0", EVALUATE, CPU)
    expected = probe.accuracy(features(capsules, images[:10], CPU)["t0"], labels[:10])
    assert table["accuracy_before"][("adam", 0.0)] == pytest.approx(expected)


def test_without_restarts_nothing_is_kicked(capsules: GenerativeModel, dataset: Dataset) -> None:
    once = STUDY.engines["gauss-newton"].model_copy(update={"restarts": 0})
    study = STUDY.model_copy(update={"engines": {"gauss-newton": once}, "angles": [0.0]})
    columns = optimisation_gains(capsules, dataset, study, EVALUATE, CPU)[0].columns
    assert "refit_accuracy_after" in columns
    assert not [name for name in columns if name.endswith(("_once", "_kicked"))]


def test_the_seed_gives_the_same_gains(capsules: GenerativeModel, dataset: Dataset) -> None:
    first, again, other = (
        optimisation_gains(capsules, dataset, ONE.model_copy(update={"seed": seed}), EVALUATE, CPU)
        for seed in (0, 0, 1)
    )
    for table, same in zip(first, again, strict=True):
        assert table.drop(columns="seconds").equals(same.drop(columns="seconds"))
    assert not first[0]["bound_after"].equals(other[0]["bound_after"])


def test_examples_show_one_image_turned_before_and_after(capsules: GenerativeModel, dataset: Dataset) -> None:
    found = example_gains(capsules, dataset, STUDY, CPU, digit=2)
    count = len(EXAMPLE_ANGLES)
    assert {name: array.shape for name, array in found.items()} == {
        "angles": (count,),
        "images": (count, SIZE, SIZE),
        "before": (count, SIZE, SIZE),
        "after": (count, SIZE, SIZE),
        "arrangements_before": (count, SIZE, SIZE, 3),
        "arrangements_after": (count, SIZE, SIZE, 3),
    }
    assert all(array.dtype == np.float32 for array in found.values())
    assert all(0 <= found[name].min() <= found[name].max() <= 1 + 1e-6 for name in found if name != "angles")
    assert found["angles"][0] == 0
    images, labels = dataset.part("test")
    np.testing.assert_allclose(found["images"][0], images[labels == 2][0, 0] / 255, atol=1e-5)
    error = {name: np.square(found["images"] - found[name]).sum() for name in ("before", "after")}
    assert error["after"] < error["before"]


def test_errors_are_those_of_paired_images(capsules: GenerativeModel, images: torch.Tensor) -> None:
    engine = STUDY.engines["adam"]
    found = optimise(capsules, images.float(), engine, torch.Generator().manual_seed(0))
    count = len(images)
    bounds = {"bound_start": torch.zeros(count), "bound_end": torch.arange(count) - 1.0}
    squares = {"error_start": torch.arange(count) ** 2.0, "error_end": torch.zeros(count)}
    made = replace(found, **bounds, **squares)
    paired = _paired(made)
    expected = np.arange(count).std(ddof=1) / np.sqrt(count)
    assert paired["bound_rise_error"] == pytest.approx(expected)
    expected = (np.arange(count) ** 2).std(ddof=1) / np.sqrt(count)
    assert paired["pixel_fall_error"] == pytest.approx(expected)
    assert paired["bound_fell"] == pytest.approx(1 / count)
    one = {name: getattr(made, name)[:1] for name in ("bound_start", "bound_end", "error_start", "error_end")}
    assert _paired(replace(made, **one))["bound_rise_error"] == 0
