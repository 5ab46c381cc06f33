"""Stages on models, on a tiny data set: what they write, and what they refuse before any work."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from records import load_record
from small import ATTENTION, REGRESSION, SCAE_SIZE, small_params, small_run, write_root

from pipeline.files import sha256
from pipeline.results.outcome import RECORD
from pipeline.results.reading import Results
from pipeline.results.studies import Study, studies_of
from stages import study, train

ROOT = Path(__file__).parents[2]
FILES = {
    "download": ["digits"],
    "own_images": ["squares"],
    "preprocess": ["squares"],
    "train": ["capsules"],
    "study": ["evaluate", "capsules"],
    "figures": [],
    "tables": [],
}
"""The modules of `stages`, each with the arguments of an item."""


def result(root: Path, item: str) -> dict[str, Any]:
    """The record that a stage wrote."""
    return load_record(root / f"reports/small/results/{item}.json")


def table_of(root: Path, item: str) -> pd.DataFrame:
    return pd.read_csv(root / f"reports/small/results/{item}.csv")


def headlines_of(path: Path) -> dict[str, Any]:
    """The headline numbers of a result."""
    content = json.loads(path.read_text())
    del content[RECORD]
    return content


def spreads(numbers: Any) -> list[Any]:
    """Every innermost dictionary."""
    if isinstance(numbers, dict) and any(isinstance(value, dict) for value in numbers.values()):
        return [each for value in numbers.values() for each in spreads(value)]
    return [numbers]


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
        for run in ("vae", "cnn"):
            study.main("data_efficiency", run)
        for item in REGRESSION:
            study.main("regression", item)
        study.main("regression_sets", "short")
        for item in ATTENTION:
            study.main("attention", item)
        study.main("attention_sets", "short")
        study.main("ablation", "matrix-squares")
        study.main("recipe", "matrix-squares")
        study.main("viewpoint", "azimuth")
        study.main("attack", "cnn-squares")
    return folder


# ---- what is written


def test_training_leaves_weights_numbers_and_a_table(done: Path) -> None:
    numbers = result(done, "train/capsules")
    assert numbers["validation"].keys() >= {"bound", "pixel_error", "loss"}
    assert all(each.keys() == {"mean", "sd", "n"} and each["n"] == 2 for each in spreads(numbers["validation"]))
    assert 0 < numbers["parameters"]["generative"] < numbers["parameters"]["total"]
    table = table_of(done, "train/capsules")
    assert len(table) == 4
    assert {"replica", "epoch", "train_log_pixels", "validation_bound"} <= set(table.columns)
    files = {"seed-3.safetensors", "seed-4.safetensors", "model.json"}
    assert {path.name for path in (done / "models/vae").iterdir()} == files
    best = table_of(done, "train/vae").groupby("replica")["validation_loss"].min()
    printed = result(done, "train/vae")["validation"]["loss"]
    assert printed["mean"] == pytest.approx(best.mean(), rel=1e-6)
    assert printed["sd"] == pytest.approx(best.std(), rel=1e-4)


def test_evaluation_leaves_probes_the_test_bound_failures_and_arrays(done: Path) -> None:
    capsules, vae = result(done, "evaluate/capsules"), result(done, "evaluate/vae")
    assert capsules["probe"].keys() == {"t0", "t0_A0", "children", "t0_sampled"}
    assert vae["probe"].keys() == {"mu_sigma"}
    assert {"presence_information", "presence_kl", "routing_entropy"} <= capsules["test"].keys()
    for numbers in (capsules, vae):
        assert numbers["kmeans"].keys() == numbers["probe"].keys() - {"t0_sampled"}
        assert {"bound", "pixel_error"} <= numbers["test"].keys()
        for protocols in numbers["probe"].values():
            assert protocols.keys() == {"refit", "fixed"}
            for tests in protocols.values():
                assert tests.keys() == {"rotated_0", "rotated_90", "affine"}
                assert all(0 <= each["mean"] <= 1 and each["n"] == 2 for each in tests.values())
    assert capsules["equivariance"].keys() == {"parts", "objects"}
    assert {"drawn", "pairs", "copied"} <= capsules["templates"].keys()
    assert not {"equivariance", "templates"} & vae.keys(), "only models with parts have such failures"
    table = table_of(done, "evaluate/vae")
    assert table.columns.tolist() == ["replica", "features", "protocol", "test", "strength", "accuracy"]
    assert len(table) == 2 * 2 * 3
    with np.load(done / "results/small/evaluate/capsules/examples.npz", allow_pickle=False) as arrays:
        assert {"templates", "reconstructions", "prior_samples", "correlation", "pair_aligned"} <= set(arrays)


def test_classifiers_are_evaluated_by_their_errors(done: Path) -> None:
    matrix, cnn = result(done, "evaluate/matrix"), result(done, "evaluate/cnn")
    assert {"centre", "crops"} < matrix["test"].keys() == cnn["test"].keys()
    assert any(name.startswith("azimuth-") for name in matrix["test"])
    assert all(0 <= each["mean"] <= 1 and each["n"] == 2 for each in spreads(matrix["test"]))
    assert matrix["votes"].keys() == {"all", "near"}
    assert "votes" not in cnn
    capsnet = result(done, "evaluate/capsnet")
    assert capsnet["probe"].keys() == {"class_capsules"}
    assert {"accuracy", "margin_loss", "pixel_error"} <= capsnet["test"].keys()


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
    record = result(done, f"equivariance/{run}")
    assert list(record["layers"]) == ["trained", "untrained", "pixels", "moments", "quarter turns"]
    assert record["layers"]["trained"].keys() == layers.keys()
    assert by in record["derivative_by"]["trained"]
    trained = record["relative_error"].get("trained", {})
    assert bool(trained) == (run != "capsules"), "only generative capsules are constant after so little training"
    for layer, measures in layers.items():
        if (found := trained.get(layer)) is None:
            assert record["layers"]["trained"][layer]["variation"]["mean"] < 1e-3
            continue
        assert found.keys() == {*measures, "invariance", "resampling"}
        assert record["derivative"]["trained"][layer].keys() == {*measures, "invariance"}
        assert found["resampling"]["rotation"]["90"]["mean"] < 1e-4, "quarter turns are exact on a grid"
    assert record["relative_error"]["quarter turns"]["turns"]["own"]["rotation"]["90"]["mean"] < 1e-5
    assert np.isfinite(table_of(done, f"equivariance/{run}")[["error", "se"]].to_numpy()).all()


def test_optimisation_leaves_gains_and_curves(done: Path) -> None:
    numbers = result(done, "optimise/capsules")
    assert list(numbers["engine"]) == ["gauss-newton", "l-bfgs", "adam"]
    for engine, angles in numbers["engine"].items():
        assert angles.keys() == {"0", "90"}
        for angle, each in angles.items():
            assert ("refit_accuracy_once" in each) == (engine == "gauss-newton")
            assert ("accuracy_kicked" in each) == (engine == "gauss-newton" and angle == "0")
            assert each["bound_after"]["mean"] >= each["bound_before"]["mean"]
    columns = {"replica", "engine", "angle", "round", "evaluations", "seconds", "bound", "pixel_error"}
    assert set(table_of(done, "optimise/capsules").columns) == columns


def test_inference_leaves_sparsity_by_condition_and_energies(done: Path) -> None:
    found = result(done, "infer/capsnet")["condition"]
    assert len(found) == 2 + 12
    assert {"forward", "start", "predicted-clamped-none", "free-free-L1-1"} <= found.keys()
    assert found["predicted-clamped-L1-1"]["class"]["falls"] == {"mean": 1.0, "sd": 0.0, "n": 2}
    with np.load(done / "results/small/infer/capsnet/examples.npz", allow_pickle=False) as arrays:
        assert (np.diff(arrays["energies_predicted-free-L2-1"].sum(1)) <= 1e-7).all()


def test_the_posterior_study_leaves_bounds_and_probes_of_three_guides(done: Path) -> None:
    numbers = result(done, "posterior/capsules")
    assert numbers["guide"].keys() == {"delta", "refined", "scratch"}
    for each in numbers["guide"].values():
        assert each.keys() == {"elbo", "iwae", "elbo_normalised", "pixel_error", "t0", "t0_A0", "children"}
        assert each["iwae"]["mean"] > each["elbo"]["mean"]
    assert {numbers["delta_sd"][name]["mean"] for name in ("parts", "objects")} <= {0.02, 0.1}
    steps = [(name, event["step"]) for event in metrics_of(done, "posterior/capsules") for name in event["values"]]
    trained = {
        guide: max(step for name, step in steps if name.startswith(f"{guide}/")) for guide in ("refined", "scratch")
    }
    assert trained == {"refined": 1, "scratch": 3}, "epochs of the study; those of the run and of the study"


def metrics_of(root: Path, item: str) -> list[dict[str, Any]]:
    """The events of metrics in the journal of an item's tracked run."""
    (made_by,) = result(root, item)["provenance"]
    journal = root / ".tracking" / made_by["tracking_run"] / "events.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return [event for event in events if event["event"] == "metrics"]


@pytest.mark.parametrize(("run", "own"), [("capsnet", 3), ("matrix", 2)])
def test_routing_is_followed_beyond_the_networks_own_iterations(done: Path, run: str, own: int) -> None:
    record = result(done, f"routing/{run}")
    assert (record["used"], record["images"]) == (own, 8)
    assert list(record["test_error"]) == ["1", "2", "3", "4"]
    assert list(record["moved"]) == ["2", "3", "4"]
    with np.load(done / f"results/small/routing/{run}/examples.npz") as arrays:
        np.testing.assert_allclose(arrays["shares"].sum(2), 1, rtol=1e-4)
        np.testing.assert_allclose(arrays["shares"][:, 0], 1 / 3, rtol=1e-4)


def test_the_sweep_leaves_probes_at_its_angle_and_part_use_of_models_with_parts(done: Path) -> None:
    vae, capsules = result(done, "sweep/vae-45"), result(done, "sweep/capsules-45")
    assert vae["probe"]["mu_sigma"]["n"] == vae["validation"]["bound"]["n"] == 1
    assert table_of(done, "sweep/vae-45").columns.tolist() == ["replica", "features", "strength", "accuracy"]
    assert "consistency" not in vae
    assert {"t0", "t0_sampled"} < capsules["probe"].keys(), "log odds and samples"
    assert capsules["consistency"]["n"] == capsules["overlap"]["n"] == 1
    assert capsules["duplicates"].keys() == {"pairs", "copied"}


def test_a_model_without_a_bound_is_trained_evaluated_and_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_root(tmp_path, small_params(capsules=small_run(), scae=small_run("scae")), SCAE_SIZE)
    monkeypatch.chdir(root)
    train.main("scae")
    study.main("evaluate", "scae")
    study.main("sweep", "scae-45")
    assert "bound" not in result(root, "train/scae")["validation"]
    found, swept = result(root, "evaluate/scae"), result(root, "sweep/scae-45")
    assert found["probe"].keys() == found["kmeans"].keys() == swept["probe"].keys() == {"prior", "posterior"}
    assert swept["validation"].keys() == {"loss"}


def test_sensitivity_leaves_probes_at_every_value_and_the_runs_own(done: Path) -> None:
    pixel_sd, temperature = result(done, "sensitivity/pixel_sd"), result(done, "sensitivity/temperature")
    assert pixel_sd["own"] == 0.2
    assert pixel_sd["value"].keys() == {"0.1", "0.2", "0.4"}
    assert all(measured.keys() == {"t0", "t0_A0", "pixel_error"} for measured in pixel_sd["value"].values())
    assert temperature["value"] == {"0.8": pixel_sd["value"]["0.2"]}, "the same model, trained once"
    assert len(table_of(done, "sensitivity/pixel_sd")) == 9
    names = {name for event in metrics_of(done, "sensitivity/pixel_sd") for name in event["values"]}
    validated = {f"pixel_sd={value}/validation_loss" for value in ("0.1", "0.2", "0.4")}
    assert {name for name in names if "validation_loss" in name} == validated, "epochs are kept apart"


def test_ablations_tell_what_a_changed_network_comes_to(done: Path) -> None:
    conditions = result(done, "ablation/matrix-squares")["condition"]
    plain, vector = conditions["unchanged"], conditions["vector"]
    assert all(numbers["test"]["centre"]["n"] == 2 for numbers in (plain, vector))
    # Transformations of 4 numbers by a matrix of 2x2 each, or by one of 4x4: 32 of the former for 2 x 2 types in 2x2
    # positions and for 3 classes from 2.
    assert vector["parameters"] - plain["parameters"] == (16 - 4) * (2 * 2 * 4 + 2 * 3)
    table = table_of(done, "ablation/matrix-squares")
    assert list(table.columns) == ["condition", "replica", "metric", "value"]
    centre = table[table["metric"] == "centre"].groupby("condition")["value"].mean()
    means = {name: numbers["test"]["centre"]["mean"] for name, numbers in conditions.items()}
    assert {name: pytest.approx(mean) for name, mean in centre.items()} == means


def test_a_condition_that_is_added_trains_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = small_params()
    ablation = values["ablation"]["matrix-squares"]
    monkeypatch.chdir(
        write_root(tmp_path / "root", values | {"ablation": {"a": ablation | {"conditions": {"first": {}}}}})
    )

    def conducted() -> tuple[dict[str, Any], dict[Path, int]]:
        study.main("ablation", "a")
        checkpoints = [path for path in Path(".cache/resume").rglob("*") if path.is_file()]
        record = result(Path(), "ablation/a")
        return record["condition"], {path: path.stat().st_mtime_ns for path in checkpoints}

    before, trained = conducted()
    conditions = {"second": {"pose": "vector"}, "first": {}}
    Path("params.yaml").write_text(yaml.safe_dump(values | {"ablation": {"a": ablation | {"conditions": conditions}}}))
    after, also_trained = conducted()
    assert after.keys() == {"first", "second"}
    assert after["first"] == before["first"]
    assert trained
    assert trained.items() < also_trained.items()


@pytest.mark.parametrize(
    ("stage", "kinds", "with_arrays"),
    [("regression", REGRESSION, ("grid", "distorted")), ("attention", ATTENTION, ("parsing",))],
)
def test_every_study_of_a_system_leaves_numbers_and_a_table(
    done: Path, stage: str, kinds: dict[str, Any], with_arrays: tuple[str, ...]
) -> None:
    for kind in kinds:
        numbers = result(done, f"{stage}/{kind}")
        assert numbers["study"] == kind
        (made_by,) = numbers["provenance"]
        assert (made_by["stage"], made_by["item"]) == (stage, kind)
        assert len(table_of(done, f"{stage}/{kind}")) > 1
        assert (done / "results/small" / stage / kind / "examples.npz").exists() == (kind in with_arrays)


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


def test_every_number_says_where_it_comes_from(done: Path) -> None:
    for item in ("train/vae", "optimise/capsules", "routing/matrix", "sweep/vae-45", "sensitivity/pixel_sd"):
        (record,) = result(done, item)["provenance"]
        assert (record["stage"], record["item"]) == tuple(item.split("/"))
        assert record["dataset"] == "squares"
        assert record["data_sha256"] == sha256(done / "data/processed/squares.npz")
        assert record["seeds"] == ([3] if item.startswith(("sweep", "sensitivity")) else [3, 4])
        assert record["device"].startswith("CPU (")
        assert record["seconds"] > 0
        assert (done / ".tracking" / record["tracking_run"]).is_dir()


def test_headline_numbers_are_few_and_are_those_of_the_record(done: Path) -> None:
    """Nested as in the record, means without spread, four digits."""

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

    without = ("regression_sets", "attention_sets", "equivariance")  # of parts, or of a model that collapsed
    paths = sorted((done / "reports/small/results").rglob("*.json"))
    assert len(paths) > 40
    for path in paths:
        shown = headlines_of(path)
        if path.parent.name not in without:
            assert 1 <= checked(shown, load_record(path)) <= 16, path
        assert not {"provenance", "study", "seconds"} & shown.keys()


def test_a_result_holds_the_settings_that_made_it_and_the_runs_that_its_study_trained(done: Path) -> None:
    values = yaml.safe_load((done / "params.yaml").read_text())

    def made_by(item: str) -> tuple[dict[str, Any], dict[str, Any]]:
        last = result(done, item)["provenance"][-1]
        return last["settings"], last["trained"]

    own = {"own_images": values["own_images"], "datasets": values["datasets"], "runs": {"vae": values["runs"]["vae"]}}
    assert made_by("train/vae") == (own, {})
    assert made_by("evaluate/vae") == ({**own, "evaluate": values["evaluate"], "failures": values["failures"]}, {})
    assert made_by("attention/toy")[0] == {"attention": {"toy": values["attention"]["toy"]}}
    assert made_by("attack/cnn-squares")[0]["runs"].keys() == {"matrix", "cnn"}
    settings, trained = made_by("sweep/vae-45")
    assert settings["item"] == {"run": "vae", "angle": 45}
    assert trained["run"]["augmentation"]["rotation"] == 45.0
    assert trained["run"]["training"]["epochs"] == 1
    poses = {name: run["model"]["pose"] for name, run in made_by("ablation/matrix-squares")[1].items()}
    assert poses == {"unchanged": "matrix", "vector": "vector"}
    assert made_by("viewpoint/azimuth")[1]["cnn"]["replicas"] == 1
    sds = {value: run["model"]["pixel_sd"] for value, run in made_by("sensitivity/pixel_sd")[1].items()}
    assert sds == {"0.1": 0.1, "0.2": 0.2, "0.4": 0.4}
    assert made_by("posterior/capsules")[1]["scratch"]["model"]["pose_posterior"] == "gaussian"


def test_a_posterior_study_cut_in_its_second_training_goes_on_in_the_same_run(
    root: Path, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    ours, theirs = (result(folder, "posterior/capsules") for folder in (root, done))
    assert ours["guide"] == theirs["guide"], "to the bit"
    assert ours["provenance"][0]["tracking_run"] == journal.name


# ---- what is refused


@pytest.mark.parametrize("stage", FILES)
def test_bad_parameters_are_exit_code_2_before_any_work(tmp_path: Path, stage: str) -> None:
    values = small_params()
    values["runs"]["vae"]["training"]["epochs"] = 0
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    told = subprocess.run(
        [sys.executable, "-m", f"stages.{stage}", *FILES[stage]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 2
    assert "runs.vae.training.epochs: " in told.stderr
    assert "Traceback" not in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def refused(capsys: pytest.CaptureFixture[str], stage: str, item: str) -> str:
    with pytest.raises(SystemExit) as caught:
        train.main(item) if stage == "train" else study.main(stage, item)
    assert caught.value.code == 1
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    return next(line for line in errors.splitlines() if line.startswith("error: "))


def test_missing_and_foreign_weights_are_named(root: Path, done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = root / "models/capsules/seed-3.safetensors"
    assert f"{weights} is missing" in refused(capsys, "evaluate", "capsules")
    assert not (root / "reports").exists()
    shutil.copytree(done / "models/vae", weights.parent)
    assert "run 'vae' instead of 'capsules'" in refused(capsys, "evaluate", "capsules")
    shutil.rmtree(weights.parent)
    shutil.copytree(done / "models/capsules", weights.parent)
    values = small_params()
    values["runs"]["capsules"]["model"]["objects"] = 5
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    assert f"{weights} belongs to something else: model " in refused(capsys, "optimise", "capsules")


@pytest.mark.parametrize(("stage", "item"), [("train", "vae"), ("evaluate", "vae"), ("sweep", "vae-0")])
def test_a_missing_data_set_is_named(root: Path, capsys: pytest.CaptureFixture[str], stage: str, item: str) -> None:
    path = root / "data/processed/squares.npz"
    path.unlink()
    assert f"{path} is missing: run the preprocess stage first" in refused(capsys, stage, item)


def test_a_study_that_cannot_be_fit_ends_with_one_message(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = small_params()
    values["regression"]["grid"]["sizes"] = [200]
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    assert "grid: class 0: 13 examples, fewer than the 200" in refused(capsys, "regression", "grid")


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
