"""Train, evaluate, optimise and sweep on a tiny data set: what they write, and what they refuse before any work."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from records import load_record
from small import ATTENTION, REGRESSION, SCAE_SIZE, small_params, small_run, write_root
from timing import processor_seconds

from pipeline.files import sha256
from pipeline.learning import checkpoints
from pipeline.results.outcome import RECORD
from pipeline.results.reading import Results
from pipeline.results.studies import Study, studies_of
from stages import study, train

ROOT = Path(__file__).parents[2]
STAGES = {
    "download": "digits",
    "own_images": "squares",
    "preprocess": "squares",
    "train": "capsules",
    "evaluate": "capsules",
    "optimise": "capsules",
    "turn": "capsules",
    "posterior": "capsules",
    "infer": "capsnet",
    "routing": "matrix",
    "sweep": "capsules-45",
    "sensitivity": "pixel_sd",
    "presence_ablation": "capsules",
    "equivariance": "capsules",
    "data_efficiency": "capsules",
    "regression": "grid",
    "regression_sets": "short",
    "attention": "toy",
    "attention_sets": "short",
    "ablation": "matrix-squares",
    "recipe": "matrix-squares",
    "viewpoint": "azimuth",
    "attack": "cnn-squares",
    "figures": "",
    "tables": "",
}
"""Every stage with an item."""
FILES = ("download", "own_images", "preprocess", "train", "study", "figures", "tables")
"""The modules of `stages`; studies share one."""


def arguments_of(stage: str) -> list[str]:
    """The module that makes an item of a stage, and its arguments."""
    named = [each for each in (STAGES[stage],) if each]
    return [stage, *named] if stage in FILES else ["study", stage, *named]


def command(root: Path, stage: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"stages.{stage}", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def read(path: Path) -> dict[str, Any]:
    """The record that a stage wrote."""
    return load_record(path)


def headlines_of(path: Path) -> dict[str, Any]:
    """The headline numbers beside it."""
    content = json.loads(path.read_text())
    del content[RECORD]
    return content


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_root(tmp_path / "a clone")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage on models has been executed once."""
    folder = write_root(tmp_path_factory.mktemp("stages") / "a clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CAPSULES_MLFLOW", "off")
        for run in ("capsules", "vae", "capsnet", "matrix", "cnn"):
            train.main(run)
            study.main("evaluate", run)
        study.main("optimise", "capsules")
        study.main("turn", "capsules")
        study.main("posterior", "capsules")
        study.main("infer", "capsnet")
        for run in ("capsnet", "matrix"):
            study.main("routing", run)
        study.main("sweep", "vae-45")
        study.main("sweep", "capsules-45")
        study.main("sensitivity", "temperature")
        study.main("sensitivity", "pixel_sd")
        study.main("presence_ablation", "capsules")
        for run in ("capsules", "vae", "capsnet", "matrix", "cnn"):
            study.main("equivariance", run)
            study.main("data_efficiency", run)
        for item in REGRESSION:
            study.main("regression", item)
        study.main("regression_sets", "short")
        for item in ATTENTION:
            study.main("attention", item)
        study.main("attention_sets", "short")
        study.main("ablation", "matrix-squares")
        study.main("recipe", "matrix-squares")
        for axis in ("azimuth", "elevation"):
            study.main("viewpoint", axis)
        study.main("attack", "cnn-squares")
    return folder


# ---- what is written


def test_classifiers_are_evaluated_by_their_errors(done: Path) -> None:
    results = done / "reports/small/results/evaluate"
    matrix, cnn = read(results / "matrix.json"), read(results / "cnn.json")
    assert {"centre", "crops"} < matrix["test"].keys() == cnn["test"].keys()
    assert any(name.startswith("azimuth-") for name in matrix["test"])
    assert all(0 <= each["mean"] <= 1 and each["n"] == 2 for each in spreads(matrix["test"]))
    assert matrix["votes"].keys() == {"all", "near"}
    assert matrix["voted_images"] == 12
    assert matrix["votes"]["all"].keys() == {"1", "2"}
    assert "votes" not in cnn
    with np.load(done / "results/small/evaluate/matrix/examples.npz") as arrays:
        assert arrays["counts"].shape[1:3] == (2, 3)


def test_an_ablation_of_presences_trains_every_condition_and_measures_what_they_say(done: Path) -> None:
    record = read(done / "reports/small/results/presence_ablation/capsules.json")
    conditions = record["condition"]
    assert list(conditions) == ["unchanged", "p"]
    names = {"t0_sampled", "t0", "t0_A0", "pixel_error", "presence_information", "presence_kl", "routing_entropy"}
    for numbers in conditions.values():
        assert names <= set(numbers)
        assert numbers["t0"]["n"] == 2
    assert conditions["p"]["presence_kl"] != conditions["unchanged"]["presence_kl"]
    priors = {name: run["model"]["object_presence"] for name, run in record["provenance"][0]["trained"].items()}
    assert priors == {"unchanged": small_run().model.object_presence, "p": 0.4}
    table = pd.read_csv(done / "reports/small/results/presence_ablation/capsules.csv")
    assert set(table["condition"]) == set(conditions)


def test_ablations_tell_what_a_changed_network_comes_to(done: Path) -> None:
    record = read(done / "reports/small/results/ablation/matrix-squares.json")
    assert record["study"] == "ablation"
    assert record["condition"].keys() == {"unchanged", "vector"}
    plain, vector = record["condition"]["unchanged"], record["condition"]["vector"]
    for numbers in (plain, vector):
        assert all(numbers[part]["accuracy"]["n"] == 2 for part in ("train", "validation"))
        assert numbers["test"]["centre"]["n"] == 2
        assert "crops" not in numbers["test"], "which takes 13 times as long"
    # Transformations of 4 numbers by a matrix of 2x2 each, or by one of 4x4: 32 of the former for 2 x 2 types in 2x2
    # positions and for 3 classes from 2.
    more = vector["parameters"] - plain["parameters"]
    assert more == (16 - 4) * (2 * 2 * 4 + 2 * 3)
    table = pd.read_csv(done / "reports/small/results/ablation/matrix-squares.csv")
    assert list(table.columns) == ["condition", "replica", "metric", "value"]
    centre = table[table["metric"] == "centre"].groupby("condition")["value"].mean()
    assert {name: pytest.approx(mean) for name, mean in centre.items()} == {
        name: numbers["test"]["centre"]["mean"] for name, numbers in record["condition"].items()
    }


def test_a_condition_that_is_added_trains_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = small_params()
    ablation = values["ablation"]["matrix-squares"]
    monkeypatch.chdir(
        write_root(tmp_path / "root", values | {"ablation": {"a": ablation | {"conditions": {"first": {}}}}})
    )

    def conducted() -> tuple[dict[str, Any], dict[Path, int]]:
        study.main("ablation", "a")
        checkpoints = [path for path in Path(".cache/resume").rglob("*") if path.is_file()]
        record = read(Path("reports/small/results/ablation/a.json"))
        return record["condition"], {path: path.stat().st_mtime_ns for path in checkpoints}

    before, trained = conducted()
    conditions = {"second": {"pose": "vector"}, "first": {}}
    Path("params.yaml").write_text(yaml.safe_dump(values | {"ablation": {"a": ablation | {"conditions": conditions}}}))
    after, also_trained = conducted()
    assert after.keys() == {"first", "second"}
    assert after["first"] == before["first"]
    assert trained
    assert trained.items() < also_trained.items()


def test_a_recipe_measures_errors_on_what_each_network_is_trained_without(done: Path) -> None:
    record = read(done / "reports/small/results/recipe/matrix-squares.json")
    assert list(record["condition"]) == ["unchanged", "shorter"]
    for numbers in record["condition"].values():
        assert numbers.keys() == {"new", "known", "train", "seconds"}
        assert all(each["n"] == 2 for each in numbers.values())
        assert 0 <= numbers["new"]["mean"] <= 1
    trained = record["provenance"][0]["trained"]
    assert {name: run["training"]["epochs"] for name, run in trained.items()} == {"unchanged": 2, "shorter": 1}
    assert trained["shorter"]["training"]["learning_rate"] == 0.01
    table = pd.read_csv(done / "reports/small/results/recipe/matrix-squares.csv")
    assert table.columns.tolist() == ["condition", "held_out", "replica", "metric", "value"]
    assert len(table) == 16


def test_novel_viewpoints_are_told_for_networks_that_match(done: Path) -> None:
    for axis in ("azimuth", "elevation"):
        numbers = read(done / f"reports/small/results/viewpoint/{axis}.json")
        table = pd.read_csv(done / f"reports/small/results/viewpoint/{axis}.csv")
        assert set(table.columns) == {"replica", "epoch", "familiar", "novel", "network"}
        assert len(table) == 4
        for network in ("capsules", "cnn"):
            assert numbers["matched"][network]["familiar"]["mean"] <= table["familiar"].max()
            own = table[table["network"] == network]
            assert numbers["best"][network]["familiar"]["mean"] == pytest.approx(own["familiar"].min())


def test_attacks_leave_accuracies_of_both_networks(done: Path) -> None:
    numbers = read(done / "reports/small/results/attack/cnn-squares.json")
    for method in ("FGSM", "BIM"):
        assert numbers["value"][method].keys() == {"general", "targeted", "black-box"}
        for kind in ("general", "targeted", "black-box"):
            assert numbers["value"][method][kind].keys() == {"capsules", "cnn"}
            assert numbers["value"][method][kind]["cnn"].keys() == {"0", "0.1"}
    # Without a change the first network is as right as it was; the other of its kind was not attacked itself.
    assert numbers["value"]["FGSM"]["general"]["cnn"]["0"]["n"] == 2
    assert numbers["value"]["FGSM"]["black-box"]["cnn"]["0"]["n"] == 1
    assert numbers["gradient"]["cnn"]["zeros"]["mean"] < 1
    with np.load(done / "results/small/attack/cnn-squares/examples.npz") as arrays:
        assert np.abs(arrays["cnn-0.1"] - arrays["cnn-0"]).max() == pytest.approx(0.1, abs=1e-6)


def spreads(numbers: Any) -> list[Any]:
    """Every innermost dictionary."""
    if isinstance(numbers, dict) and any(isinstance(value, dict) for value in numbers.values()):
        return [each for value in numbers.values() for each in spreads(value)]
    return [numbers]


def test_training_leaves_weights_numbers_and_a_table(done: Path) -> None:
    results = done / "reports/small/results/train"
    numbers = read(results / "capsules.json")
    assert numbers["validation"].keys() >= {"bound", "pixel_error", "loss"}
    assert all(each.keys() == {"mean", "sd", "n"} and each["n"] == 2 for each in spreads(numbers["validation"]))
    assert numbers["epochs"] == {"mean": 2.0, "sd": 0.0, "n": 2}
    assert 0 < numbers["parameters"]["generative"] < numbers["parameters"]["total"]
    table = pd.read_csv(results / "capsules.csv")
    assert len(table) == 4
    assert {"replica", "epoch", "train_bound", "validation_bound", "train_pixel_error"} <= set(table.columns)
    assert {"train_log_pixels", "train_log_parts", "train_log_objects", "train_entropy"} <= set(table.columns)
    assert table["validation_presence_information"].between(-0.5, math.log(10)).all(), "batches of ten"
    assert (table["validation_presence_kl"] >= 0).all()
    assert {path.name for path in (done / "models/vae").iterdir()} == {
        "seed-3.safetensors",
        "seed-4.safetensors",
        "model.json",
    }


def test_evaluation_leaves_probes_the_test_bound_and_arrays(done: Path) -> None:
    results = done / "reports/small/results/evaluate"
    capsules, vae = read(results / "capsules.json"), read(results / "vae.json")
    assert capsules["probe"].keys() == {"t0", "t0_A0", "children", "t0_sampled"}
    assert capsules["test"].keys() >= {"presence_information", "presence_kl", "routing_entropy", "mean_routing_entropy"}
    assert vae["probe"].keys() == {"mu_sigma"}
    for numbers in (capsules, vae):
        assert numbers["kmeans"].keys() == numbers["probe"].keys() - {"t0_sampled"}
        assert all(each["n"] == 2 for each in numbers["kmeans"].values())
    for numbers in (capsules, vae):
        assert numbers["test"].keys() >= {"bound", "pixel_error"}
        for protocols in numbers["probe"].values():
            assert protocols.keys() == {"refit", "fixed"}
            for tests in protocols.values():
                assert tests.keys() == {"rotated_0", "rotated_90", "affine"}
                assert all(0 <= each["mean"] <= 1 and each["n"] == 2 for each in tests.values())
    table = pd.read_csv(results / "vae.csv")
    assert table.columns.tolist() == ["replica", "features", "protocol", "test", "strength", "accuracy"]
    assert len(table) == 2 * 2 * 3
    with np.load(done / "results/small/evaluate/capsules/examples.npz", allow_pickle=False) as arrays:
        assert set(arrays) >= {"templates", "alphas", "images", "reconstructions", "arrangements", "angles"}
        assert "prior_samples" in arrays
        assert {"correlation", "pair_aligned"} <= set(arrays)
    assert (done / "results/small/evaluate/vae").is_dir()


def test_evaluation_measures_the_failures_of_models_with_parts(done: Path) -> None:
    results = done / "reports/small/results/evaluate"
    capsules, vae = read(results / "capsules.json"), read(results / "vae.json")
    assert capsules["equivariance"].keys() == {"parts", "objects"}
    for by_angle in capsules["equivariance"].values():
        assert by_angle.keys() == {"90", "180"}
        assert all(each["n"] == 2 for measures in by_angle.values() for each in measures.values())
    assert {"drawn", "pairs", "copied", "faded_strokes_pairs"} <= capsules["templates"].keys()
    assert not {"equivariance", "templates"} & vae.keys()


@pytest.mark.parametrize(
    ("run", "layers", "by"),
    [
        ("capsules", {"parts": {"own", "fitted"}, "objects": {"own", "fitted"}, "presences": set()}, "forward mode"),
        ("vae", {"code": {"fitted"}}, "forward mode"),
        ("capsnet", {"capsules": {"fitted"}, "presences": set()}, "two backward passes"),
        ("matrix", {"poses": {"own", "fitted"}, "presences": set()}, "central differences"),
        ("cnn", {"maps": {"own"}, "hidden": {"fitted"}}, "forward mode"),
    ],
)
def test_equivariance_is_measured_alike_for_every_system(
    done: Path, run: str, layers: dict[str, set[str]], by: str
) -> None:
    record = read(done / f"reports/small/results/equivariance/{run}.json")
    assert list(record["layers"]) == ["trained", "untrained", "pixels", "moments", "quarter turns"]
    assert record["layers"]["trained"].keys() == layers.keys()
    assert by in record["derivative_by"]["trained"]
    assert record["images"] == {"test": 12, "fit": 16}
    trained = record["relative_error"].get("trained", {})
    assert bool(trained) == (run != "capsules"), "only generative capsules are constant after so little training"
    for layer, measures in layers.items():
        found = trained.get(layer)
        if found is None:
            assert record["layers"]["trained"][layer]["variation"]["mean"] < 1e-3
            continue
        assert found.keys() == {*measures, "invariance", "resampling"}
        assert record["derivative"]["trained"][layer].keys() == {*measures, "invariance"}
        for measure, families in found.items():
            magnitudes = {family: list(by_magnitude) for family, by_magnitude in families.items()}
            assert magnitudes == {"rotation": ["30", "90"], "shift": ["1"], "scale": ["1.2"], "shear": ["0.2"]}
            assert all(each["n"] == 2 and each["mean"] >= 0 for each in spreads(families)), measure
        assert found["resampling"]["rotation"]["90"]["mean"] < 1e-4, "quarter turns are exact on a grid"
    assert record["relative_error"]["quarter turns"]["turns"]["own"]["rotation"]["90"]["mean"] < 1e-5
    table = pd.read_csv(done / f"reports/small/results/equivariance/{run}.csv")
    assert table["subject"].drop_duplicates().tolist() == list(record["relative_error"])
    assert np.isfinite(table[["error", "se"]].to_numpy()).all()


def test_optimisation_leaves_gains_and_curves(done: Path) -> None:
    numbers = read(done / "reports/small/results/optimise/capsules.json")
    assert numbers["images"] == 4
    assert list(numbers["engine"]) == ["gauss-newton", "l-bfgs", "adam"]
    for engine, angles in numbers["engine"].items():
        assert angles.keys() == {"0", "90"}
        chosen = engine == "gauss-newton"
        names = {"bound", "pixel_error", "accuracy"} | ({"refit_accuracy"} if chosen else set())
        paired = {"bound_rise_error", "pixel_fall_error", "bound_fell"}
        for angle, each in angles.items():
            once = {"accuracy_once", "refit_accuracy_once"} if chosen else set()
            kicked = {"accuracy_kicked", "refit_accuracy_kicked", "bound_kicked"} if chosen and angle == "0" else set()
            before_after = {f"{name}_{when}" for name in names for when in ("before", "after")}
            assert each.keys() == before_after | once | kicked | paired | {"evaluations", "seconds"}
            assert each["bound_after"]["mean"] >= each["bound_before"]["mean"]
    curves = pd.read_csv(done / "reports/small/results/optimise/capsules.csv")
    assert set(curves.columns) == {
        "replica", "engine", "angle", "round", "evaluations", "seconds", "bound", "pixel_error"
    }  # fmt: skip
    with np.load(done / "results/small/optimise/capsules/examples.npz", allow_pickle=False) as arrays:
        assert {"angles", "images", "before", "after", "arrangements_before", "arrangements_after"} == set(arrays)


def test_inference_leaves_sparsity_by_condition_and_energies(done: Path) -> None:
    numbers = read(done / "reports/small/results/infer/capsnet.json")
    assert numbers["images"] == 6
    found = numbers["condition"]
    assert len(found) == 2 + 12
    assert {"forward", "start", "predicted-clamped-none", "free-free-L1-1"} <= found.keys()
    for layers in found.values():
        assert layers.keys() == {"class"}
        assert all(each.keys() == {"mean", "sd", "n"} for each in layers["class"].values())
    assert found["predicted-clamped-L1-1"]["class"]["falls"] == {"mean": 1.0, "sd": 0.0, "n": 2}
    table = pd.read_csv(done / "reports/small/results/infer/capsnet.csv")
    assert len(table) == 2 * 14
    with np.load(done / "results/small/infer/capsnet/examples.npz", allow_pickle=False) as arrays:
        assert arrays["energies_free-clamped-L1-1"].shape == (6, 5)
        assert arrays["capsules_start"].shape == (6, 3, 5)
        assert (np.diff(arrays["energies_predicted-free-L2-1"].sum(1)) <= 1e-7).all()
    evaluated = read(done / "reports/small/results/evaluate/capsnet.json")
    assert evaluated["probe"].keys() == {"class_capsules"}
    assert evaluated["test"].keys() >= {"accuracy", "margin_loss", "pixel_error"}


def test_the_posterior_study_leaves_bounds_and_probes_of_three_guides(done: Path) -> None:
    numbers = read(done / "reports/small/results/posterior/capsules.json")
    assert numbers["guide"].keys() == {"delta", "refined", "scratch"}
    for each in numbers["guide"].values():
        assert each.keys() == {"elbo", "iwae", "elbo_normalised", "pixel_error", "t0", "t0_A0", "children"}
        assert each["iwae"]["mean"] > each["elbo"]["mean"]
        assert each["elbo"]["n"] == 1
    assert {numbers["delta_sd"][name]["mean"] for name in ("parts", "objects")} <= {0.02, 0.1}
    table = pd.read_csv(done / "reports/small/results/posterior/capsules.csv")
    assert set(table.columns) == {"replica", "guide", "metric", "value"}
    assert len(table) == 3 * 7
    (record,) = numbers["provenance"]
    journal = done / ".tracking" / record["tracking_run"] / "events.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    steps = [(name, event["step"]) for event in events if event["event"] == "metrics" for name in event["values"]]
    trained = {
        guide: max(step for name, step in steps if name.startswith(f"{guide}/")) for guide in ("refined", "scratch")
    }
    assert trained == {"refined": 1, "scratch": 3}, "epochs of the study; those of the run and of the study"


def test_a_posterior_study_cut_in_its_second_training_goes_on_in_the_same_run(
    root: Path, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULES_MLFLOW", "off")
    shutil.copytree(done / "models", root / "models")
    from pipeline.learning import runs

    whole, trainings = runs.train, []

    def cut(*arguments: Any, **named: Any) -> Any:
        trainings.append(arguments)
        if len(trainings) == 2:
            raise RuntimeError("cut")
        return whole(*arguments, **named)

    monkeypatch.setattr(runs, "train", cut)
    with pytest.raises(RuntimeError, match="cut"):
        study.main("posterior", "capsules")
    monkeypatch.setattr(runs, "train", whole)
    study.main("posterior", "capsules")
    (journal,) = (root / ".tracking").iterdir()
    ours, theirs = (read(folder / "reports/small/results/posterior/capsules.json") for folder in (root, done))
    assert ours["guide"] == theirs["guide"], "to the bit"
    assert ours["provenance"][0]["tracking_run"] == journal.name


def test_the_sweep_leaves_probes_at_its_angle(done: Path) -> None:
    numbers = read(done / "reports/small/results/sweep/vae-45.json")
    assert numbers["probe"]["mu_sigma"]["n"] == 1
    assert numbers["validation"]["bound"]["n"] == 1
    table = pd.read_csv(done / "reports/small/results/sweep/vae-45.csv")
    assert table.columns.tolist() == ["replica", "features", "strength", "accuracy"]
    assert list((done / "results/small/sweep/vae-45").iterdir()) == []
    assert "consistency" not in numbers


def test_a_model_without_a_bound_is_trained_evaluated_and_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_root(tmp_path, small_params(capsules=small_run(), scae=small_run("scae")), SCAE_SIZE)
    monkeypatch.chdir(root)
    monkeypatch.setenv("CAPSULES_MLFLOW", "off")
    train.main("scae")
    study.main("evaluate", "scae")
    study.main("sweep", "scae-45")
    results = root / "reports/small/results"
    assert "bound" not in read(results / "train/scae.json")["validation"]
    found = read(results / "evaluate/scae.json")
    assert found["probe"].keys() == found["kmeans"].keys() == {"prior", "posterior"}
    swept = read(results / "sweep/scae-45.json")
    assert swept["validation"].keys() == {"loss"}
    assert swept["probe"].keys() == {"prior", "posterior"}


def test_the_sweep_measures_part_use_of_models_with_parts(done: Path) -> None:
    numbers = read(done / "reports/small/results/sweep/capsules-45.json")
    assert {"t0", "t0_sampled"} < numbers["probe"].keys(), "log odds and samples"
    assert numbers["consistency"]["n"] == numbers["overlap"]["n"] == 1
    assert numbers["duplicates"].keys() == {"pairs", "copied"}
    with np.load(done / "results/small/sweep/capsules-45/examples.npz", allow_pickle=False) as arrays:
        assert len(arrays["images"]) == len(arrays["arrangements"]) > 0


@pytest.mark.parametrize("study", REGRESSION)
def test_regression_leaves_numbers_and_a_table_of_every_study(done: Path, study: str) -> None:
    results = done / "reports/small/results/regression"
    numbers = read(results / f"{study}.json")
    assert numbers["study"] == study
    (record,) = numbers["provenance"]
    assert (record["stage"], record["item"], record["dataset"]) == ("regression", study, "squares")
    assert len(pd.read_csv(results / f"{study}.csv")) > 1
    arrays = done / "results/small/regression" / study / "examples.npz"
    assert arrays.exists() == (study in ("grid", "distorted"))


@pytest.mark.parametrize("study", ATTENTION)
def test_attention_leaves_numbers_and_a_table_of_every_study(done: Path, study: str) -> None:
    results = done / "reports/small/results/attention"
    numbers = read(results / f"{study}.json")
    assert numbers["study"] == study
    (record,) = numbers["provenance"]
    assert (record["stage"], record["item"], record["data_sha256"]) == ("attention", study, None)
    assert len(pd.read_csv(results / f"{study}.csv")) > 1
    assert (done / "results/small/attention" / study / "examples.npz").exists() == (study == "parsing")


@pytest.mark.parametrize(("stage", "kinds"), [("regression", ("grid", "starts")), ("attention", ("toy", "parsing"))])
def test_a_set_of_studies_is_each_of_them(done: Path, stage: str, kinds: tuple[str, ...]) -> None:
    """Of the studies that are alone and in a set: the same numbers, rows, arrays, settings and data, read alike."""
    results = Results(done / "reports/small/results", done / "results/small")
    found = {study.name: study for study in studies_of(results, stage, Study)}
    assert {(study.stage, study.item) for study in found.values() if study.part} == {(f"{stage}_sets", "short")}
    for kind in kinds:
        alone, within = found[kind], found[f"{kind}-in-set"]
        assert within.kind == alone.kind == kind
        assert within.settings == alone.settings
        assert within.numbers.records[-1]["dataset"] == alone.numbers.records[-1]["dataset"]
        numbers = [without_times(study.numbers.values) for study in (alone, within)]
        assert numbers[0] == numbers[1]
        theirs, ours = alone.table(()), within.table(())
        assert theirs is not None
        assert ours is not None
        columns = [column for column in theirs if column != "seconds"]
        assert set(ours) == set(theirs)
        pd.testing.assert_frame_equal(ours[columns], theirs[columns])
        arrays = [study.examples(()) for study in (alone, within)]
        assert (arrays[0] is None) == (arrays[1] is None) == (kind not in ("grid", "parsing"))
        if arrays[0] is not None and arrays[1] is not None:
            assert arrays[0].keys() == arrays[1].keys()
            assert all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
    headlines = headlines_of(results.records / f"{stage}_sets" / "short.json")["studies"]
    assert headlines.keys() == {f"{kind}-in-set" for kind in kinds}


def without_times(values: Any) -> Any:
    """Numbers without how long they took, and without what surrounds them."""
    if isinstance(values, dict):
        kept = values.keys() - {"seconds", "provenance", "study", "dataset"}
        return {name: without_times(values[name]) for name in kept}
    return values


def test_fits_in_a_set_are_kept_by_the_code_of_their_own_study(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So an edit of one study repeats no other's."""
    named: list[list[str]] = []

    def fingerprint(folder: Path, places: Iterable[str]) -> str:
        named.append(list(places))
        return "code"

    monkeypatch.setattr(checkpoints, "code_fingerprint", fingerprint)
    study.main("regression_sets", "short")
    folder = "pipeline/systems/regression/experiments"
    assert [places[-2:] for places in named] == [
        [f"{folder}/__init__.py", f"{folder}/{kind}.py"] for kind in ("grid", "starts")
    ]
    for places in named:
        assert "pipeline/systems/regression/model" in places
        assert folder not in places
    for kind in ("grid", "starts"):
        study.main("regression", kind)
    assert named[2:] == named[:2], "a study keeps its fits when it is moved into a set or out of it"


def test_a_study_that_cannot_be_fit_ends_with_one_message(root: Path) -> None:
    values = yaml.safe_load((root / "params.yaml").read_text())
    values["regression"]["grid"]["sizes"] = [200]
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    told = command(root, "study", "regression", "grid")
    assert told.returncode == 1
    assert "grid: class 0: 13 examples, fewer than the 200 numbers of a capsule" in told.stderr
    assert "Traceback" not in told.stderr


def test_sensitivity_leaves_probes_at_every_value_and_the_runs_own(done: Path) -> None:
    results = done / "reports/small/results/sensitivity"
    pixel_sd, temperature = read(results / "pixel_sd.json"), read(results / "temperature.json")
    assert pixel_sd["own"] == 0.2
    assert pixel_sd["value"].keys() == {"0.1", "0.2", "0.4"}
    for measured in pixel_sd["value"].values():
        assert measured.keys() == {"t0", "t0_A0", "pixel_error"}
        assert all(each["n"] == 1 for each in measured.values())
    assert temperature["value"].keys() == {"0.8"}
    assert temperature["value"]["0.8"] == pixel_sd["value"]["0.2"], "the same model, trained once"
    table = pd.read_csv(results / "pixel_sd.csv")
    assert table.columns.tolist() == ["replica", "metric", "measured", "value"]
    assert len(table) == 9


def test_trainings_of_one_tracked_run_keep_their_epochs_apart(done: Path) -> None:
    (record,) = read(done / "reports/small/results/sensitivity/pixel_sd.json")["provenance"]
    events = (done / ".tracking" / record["tracking_run"] / "events.jsonl").read_text().splitlines()
    logged = [event["values"] for event in map(json.loads, events) if event["event"] == "metrics"]
    names = {name for values in logged for name in values if "validation_loss" in name}
    assert names == {f"pixel_sd={value}/validation_loss" for value in ("0.1", "0.2", "0.4")}


@pytest.mark.parametrize(
    "item",
    [
        "train/vae",
        "evaluate/vae",
        "optimise/capsules",
        "turn/capsules",
        "posterior/capsules",
        "routing/capsnet",
        "routing/matrix",
        "sweep/vae-45",
        "sensitivity/pixel_sd",
    ],
)
def test_every_number_says_where_it_comes_from(done: Path, item: str) -> None:
    (record,) = read(done / f"reports/small/results/{item}.json")["provenance"]
    assert (record["stage"], record["item"]) == tuple(item.split("/"))
    assert record["dataset"] == "squares"
    assert record["data_sha256"] == sha256(done / "data/processed/squares.npz")
    assert record["seeds"] == ([3] if item.startswith(("posterior", "sweep", "sensitivity")) else [3, 4])
    assert record["device"].startswith("CPU (")
    assert record["seconds"] > 0
    assert (done / ".tracking" / record["tracking_run"]).is_dir()


def test_what_is_printed_in_a_results_file_is_what_training_had(done: Path) -> None:
    table = pd.read_csv(done / "reports/small/results/train/vae.csv")
    best = table.groupby("replica")["validation_loss"].min()
    numbers = read(done / "reports/small/results/train/vae.json")["validation"]["loss"]
    assert numbers["mean"] == pytest.approx(best.mean(), rel=1e-6)
    assert numbers["sd"] == pytest.approx(best.std(), rel=1e-4)


ITEMS = (
    *(f"{stage}/{run}" for stage in ("train", "evaluate") for run in ("capsules", "vae", "capsnet", "matrix", "cnn")),
    *("optimise/capsules", "turn/capsules", "posterior/capsules", "infer/capsnet", "sweep/vae-45", "sweep/capsules-45"),
    *("routing/capsnet", "routing/matrix", "sensitivity/pixel_sd", "sensitivity/temperature"),
    *(f"regression/{study}" for study in REGRESSION),
    *(f"attention/{study}" for study in ATTENTION),
    *("regression_sets/short", "attention_sets/short"),
    *("ablation/matrix-squares", "viewpoint/azimuth", "viewpoint/elevation", "attack/cnn-squares"),
)
"""All that the fixture `done` measures."""


@pytest.mark.parametrize(("run", "own"), [("capsnet", 3), ("matrix", 2)])
def test_routing_is_followed_beyond_the_networks_own_iterations(done: Path, run: str, own: int) -> None:
    record = read(done / f"reports/small/results/routing/{run}.json")
    assert (record["used"], record["images"]) == (own, 8)
    assert list(record["test_error"]) == ["1", "2", "3", "4"]
    assert list(record["moved"]) == ["2", "3", "4"]
    assert all(each["n"] == 2 for each in spreads(record["test_error"]))
    with np.load(done / f"results/small/routing/{run}/examples.npz") as arrays:
        shown, iterations, classes = arrays["activations"].shape
        assert (iterations, classes) == (4, 3)
        assert arrays["shares"].shape[:3] == (shown, 4, 3)
        np.testing.assert_allclose(arrays["shares"].sum(2), 1, rtol=1e-4)
        np.testing.assert_allclose(arrays["shares"][:, 0], 1 / 3, rtol=1e-4)


@pytest.mark.parametrize("item", ITEMS)
def test_headline_numbers_are_few_and_are_those_of_the_record(done: Path, item: str) -> None:
    """Nested as in the record, means without spread, four digits."""
    path = done / f"reports/small/results/{item}.json"
    shown, record = headlines_of(path), read(path)

    def checked(shown: dict[str, Any], record: dict[str, Any]) -> int:
        count = 0
        for key, value in shown.items():
            if isinstance(value, dict):
                count += checked(value, record[key])
            else:
                mean = record[key]["mean"] if isinstance(record[key], dict) else record[key]
                assert value == float(f"{mean:.4g}")
                count += 1
        return count

    assert 1 <= checked(shown, record) <= 16
    assert not {"provenance", "study", "seconds"} & shown.keys()


def test_every_headline_that_a_study_names_was_measured(done: Path) -> None:
    def headline(item: str) -> dict[str, Any]:
        return headlines_of(done / f"reports/small/results/{item}.json")

    assert headline("train/vae")["validation"].keys() >= {"loss", "bound", "pixel_error"}
    assert headline("evaluate/capsules")["probe"]["t0"]["refit"].keys() == {"rotated_0", "rotated_90", "affine"}
    assert headline("evaluate/matrix").keys() == {"test"}
    assert headline("evaluate/matrix")["test"].keys() == {"centre", "crops"}
    assert headline("sweep/vae-45").keys() == {"probe", "validation"}
    assert headline("posterior/capsules")["guide"].keys() == {"delta", "refined", "scratch"}
    assert headline("sensitivity/pixel_sd")["value"].keys() == {"0.1", "0.2", "0.4"}
    assert headline("sensitivity/pixel_sd")["value"]["0.4"].keys() == {"t0", "pixel_error"}
    attacked = headline("attack/cnn-squares")["value"]
    assert attacked.keys() == {"FGSM", "BIM"}
    assert attacked["FGSM"] == {
        kind: {network: {"0.1": attacked["FGSM"][kind][network]["0.1"]} for network in ("capsules", "cnn")}
        for kind in ("general", "black-box")
    }


def test_a_result_holds_the_settings_that_made_it(done: Path) -> None:
    values = yaml.safe_load((done / "params.yaml").read_text())

    def settings(item: str) -> dict[str, Any]:
        return read(done / f"reports/small/results/{item}.json")["provenance"][-1]["settings"]

    assert settings("train/vae") == {
        "own_images": values["own_images"],
        "datasets": values["datasets"],
        "runs": {"vae": values["runs"]["vae"]},
    }
    evaluated = settings("evaluate/vae")
    assert evaluated == {
        **settings("train/vae"),
        "evaluate": values["evaluate"],
        "failures": values["failures"],
    }
    assert settings("attention/toy") == {"attention": {"toy": values["attention"]["toy"]}}
    attack = settings("attack/cnn-squares")
    assert attack["runs"].keys() == {"matrix", "cnn"}
    assert attack["attack"] == values["attack"]
    assert settings("sweep/vae-45")["item"] == {"run": "vae", "angle": 45}


def test_a_result_holds_the_runs_that_its_study_trained(done: Path) -> None:
    def trained(item: str) -> dict[str, Any]:
        return read(done / f"reports/small/results/{item}.json")["provenance"][-1]["trained"]

    assert trained("train/vae") == trained("evaluate/vae") == trained("attack/cnn-squares") == {}
    assert trained("sweep/vae-45")["run"]["augmentation"]["rotation"] == 45.0
    assert trained("sweep/vae-45")["run"]["training"]["epochs"] == 1
    conditions = trained("ablation/matrix-squares")
    assert {name: run["model"]["pose"] for name, run in conditions.items()} == {
        "unchanged": "matrix",
        "vector": "vector",
    }
    assert trained("viewpoint/azimuth").keys() == {"capsules", "cnn"}
    assert trained("viewpoint/azimuth")["cnn"]["replicas"] == 1
    assert {value: run["model"]["pixel_sd"] for value, run in trained("sensitivity/pixel_sd").items()} == {
        "0.1": 0.1,
        "0.2": 0.2,
        "0.4": 0.4,
    }
    assert trained("posterior/capsules").keys() == {"refined", "scratch"}
    assert trained("posterior/capsules")["scratch"]["model"]["pose_posterior"] == "gaussian"


# ---- what is refused


@pytest.mark.parametrize("stage", STAGES)
def test_bad_parameters_are_exit_code_2_before_any_work(tmp_path: Path, stage: str) -> None:
    values = small_params()
    values["runs"]["vae"]["training"]["epochs"] = 0
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    told = command(tmp_path, *arguments_of(stage))
    assert told.returncode == 2
    assert "runs.vae.training.epochs: must be at least 1 and at most 10000 (found 0)" in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def refused(capsys: pytest.CaptureFixture[str], stage: str, item: str) -> str:
    with pytest.raises(SystemExit) as caught:
        train.main(item) if stage == "train" else study.main(stage, item)
    assert caught.value.code == 1
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    return next(line for line in errors.splitlines() if line.startswith("error: "))


@pytest.mark.parametrize(
    ("stage", "item"), [("evaluate", "capsules"), ("optimise", "capsules"), ("posterior", "capsules")]
)
def test_missing_weights_are_named(root: Path, capsys: pytest.CaptureFixture[str], stage: str, item: str) -> None:
    assert refused(capsys, stage, item).startswith(f"error: {root / 'models/capsules/seed-3.safetensors'} is missing")
    assert not (root / "reports").exists()


def test_weights_of_another_run_or_a_changed_model_are_named(
    root: Path, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = root / "models/capsules/seed-3.safetensors"
    shutil.copytree(done / "models/vae", weights.parent)
    assert refused(capsys, "evaluate", "capsules") == (
        f"error: {weights} belongs to something else: run 'vae' instead of 'capsules'. Delete it and run again."
    )
    shutil.rmtree(weights.parent)
    shutil.copytree(done / "models/capsules", weights.parent)
    values = small_params()
    values["runs"]["capsules"]["model"]["objects"] = 5
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    assert f"{weights} belongs to something else: model " in refused(capsys, "optimise", "capsules")
    weights.write_bytes(b"")
    assert f"{weights} is damaged" in refused(capsys, "evaluate", "capsules")


@pytest.mark.parametrize(
    ("stage", "item"),
    [
        ("train", "vae"),
        ("evaluate", "vae"),
        ("optimise", "capsules"),
        ("posterior", "capsules"),
        ("sweep", "vae-0"),
        ("sensitivity", "pixel_sd"),
        ("presence_ablation", "capsules"),
        ("routing", "matrix"),
        ("equivariance", "vae"),
        ("data_efficiency", "vae"),
    ],
)
def test_a_missing_data_set_is_named(root: Path, capsys: pytest.CaptureFixture[str], stage: str, item: str) -> None:
    path = root / "data/processed/squares.npz"
    path.unlink()
    assert f"{path} is missing: run the preprocess stage first" in refused(capsys, stage, item)


def test_a_sweep_at_an_angle_that_is_not_asked_for_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        study.main("sweep", "vae-30")
    assert caught.value.code == 2
    assert "sweep has no 'vae-30'; params.yaml has: capsules-0, capsules-45, vae-0, vae-45" in capsys.readouterr().err


def test_training_on_a_full_disk_says_so_and_leaves_earlier_results(
    root: Path, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(done / "models/vae", root / "models/vae")
    before = (root / "models/vae/seed-3.safetensors").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limits[1]))
    try:
        told = refused(capsys, "train", "vae")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write" in told
    assert "the file exceeds the allowed file size" in told
    assert (root / "models/vae/seed-3.safetensors").read_bytes() == before


# ---- help


@pytest.mark.parametrize("stage", FILES)
def test_help_answers_in_under_a_second(tmp_path: Path, stage: str) -> None:
    """Of processor time, the median of three: the machine may be busy with other things."""

    def ask_for_help() -> None:
        answer = command(tmp_path, stage, "--help")
        assert answer.returncode == 0
        assert "Usage" in answer.stdout

    measured = [processor_seconds(ask_for_help) for _ in range(2)]
    if max(measured) >= 1.0:  # else the median of three is already known to be less
        measured.append(processor_seconds(ask_for_help))
        assert statistics.median(measured) < 1.0


def test_nothing_heavy_is_imported_before_a_stage_has_work() -> None:
    heavy = ("torch", "mlflow", "pandas", "sklearn", "pyro", "matplotlib", "scipy")
    imports = "; ".join(f"import stages.{stage}" for stage in FILES)
    code = f"import sys; {imports}; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output == "[]\n"
