"""Stages on models, on a tiny data set: what they write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from records import load_record, tracked_events
from small import ATTENTION, OWN_IMAGES, REGRESSION, SCAE_SIZE, small_params, small_run, write_root

from pipeline.data.settings import OwnImagesParams
from pipeline.errors import UserError
from pipeline.files import sha256
from pipeline.results.outcome import RECORD
from pipeline.results.spread import flat
from stages import study, train
from stages.workspace import stage

ROOT = Path(__file__).parents[2]


def result(root: Path, item: str) -> dict[str, Any]:
    """The record that a stage wrote."""
    return load_record(root / f"reports/small/results/{item}.json")


@pytest.fixture(scope="module", autouse=True)
def squares_have_factors() -> Iterator[None]:
    """The small data set is the only one of own images with factors of variation: `write_root` saves it with them."""
    known = replace(OwnImagesParams(**OWN_IMAGES).known, factors=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnImagesParams, "known", known)
        yield


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_root(tmp_path / "a clone")
    monkeypatch.chdir(folder)
    return folder


RUNS = ("capsules", "vae", "capsnet", "matrix", "cnn")
ITEMS = [
    *(f"evaluate/{run}" for run in RUNS),
    *(f"{study}/capsules" for study in ("optimise", "turn", "posterior", "presence_ablation")),
    *(f"{study}/capsnet" for study in ("infer", "routing")),
    *(f"{study}/cnn" for study in ("equivariance", "data_efficiency")),
    *(f"{study}/matrix-squares" for study in ("ablation", "recipe")),
    *(f"regression/{kind}" for kind in REGRESSION),
    *(f"attention/{kind}" for kind in ATTENTION),
    *("regression_sets/short", "attention_sets/short", "routing/matrix", "sweep/vae-45", "sweep/capsules-45"),
    *("sensitivity/pixel_sd", "viewpoint/azimuth", "attack/cnn-squares"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage on models has been executed once."""
    values = small_params()
    values["optimise"]["capsules"] |= {"replicas": 1, "angles": [90.0]}
    folder = write_root(tmp_path_factory.mktemp("stages") / "a clone", values)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CAPSULES_MLFLOW", "off")
        for run in RUNS:
            train.main(run)
        for item in ITEMS:
            study.main(*item.split("/"))
    return folder


def test_every_study_leaves_its_numbers_and_a_table(done: Path) -> None:
    for item in ITEMS:
        assert len(result(done, item)) > 1, "provenance, and numbers"
        assert len(pd.read_csv(done / f"reports/small/results/{item}.csv")) >= 1, item


def test_only_kinds_of_study_that_have_arrays_have_a_folder_for_them(done: Path) -> None:
    """DVC warns of every empty folder."""
    folders = {path.parts[-2] for path in done.glob("results/small/*/*")}
    assert folders == {path.parts[-3] for path in done.glob("results/small/*/*/examples.npz")}


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


def test_a_training_that_no_longer_learns_warns_and_is_tagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = small_params()
    values["runs"]["cnn"]["training"]["gradient_clip"] = 1e-9
    values["recipe"]["matrix-squares"] |= {"run": "cnn", "conditions": {"unchanged": {}}}
    root = write_root(tmp_path, values)
    monkeypatch.chdir(root)
    train.main("cnn")
    study.main("recipe", "matrix-squares")
    trainings = [f"unchanged-{value}" for value in values["recipe"]["matrix-squares"]["held_out"]]
    assert len(caplog.messages) == len(["train@cnn", *trainings])
    assert all("gradient_clip, 1e-09" in message for message in caplog.messages)
    tags = {tag for event in tracked_events(root / ".tracking") for tag in event.get("tags", {}) if "warning" in tag}
    assert tags == {"warning", *(f"{name}/warning" for name in trainings)}


def test_a_condition_that_is_added_trains_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = small_params()
    ablation = values["ablation"]["matrix-squares"]
    first = {"ablation": {"a": ablation | {"conditions": {"first": {}}}}}
    monkeypatch.chdir(write_root(tmp_path / "root", values | first))

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


def test_a_checkpoint_belongs_to_the_images_that_it_saw(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a study that chooses images is not part of a training's code."""
    keys = list[str]()

    def train_run(*given: Any, **_: Any) -> None:
        keys.append(given[3])
        raise UserError("the key is known")

    monkeypatch.setattr("pipeline.learning.runs.train_run", train_run)
    with stage("train", "cnn") as workspace:
        context, run = workspace.context, workspace.params.runs["cnn"]
        dataset = context.dataset(run.dataset)
        other = replace(dataset, labels=dataset.labels[::-1].copy())
        fewer = replace(dataset, split=dataset.split | {"train": dataset.split["train"][1:]})
        for changed in (None, dataset, other, fewer):
            with suppress(UserError):
                context.train("one", run, changed)
        for each in (dataset, other):
            with suppress(UserError):
                context.train("one", run, watched={"far": each.part("test")})
    assert len(set(keys)) == len(keys) == 6
    assert keys[0] == context.sha256(run.dataset)
    logged = [event["sha256"] for event in tracked_events(root / ".tracking") if event["event"] == "dataset"]
    assert set(logged) == {keys[0]}, "the hash of the file, whichever images were chosen"


def test_every_number_says_where_it_comes_from(done: Path) -> None:
    for item in ("train/vae", "optimise/capsules", "routing/matrix", "sweep/vae-45", "sensitivity/pixel_sd"):
        (record,) = result(done, item)["provenance"]
        assert (record["stage"], record["item"]) == tuple(item.split("/"))
        assert record["dataset"] == "squares"
        assert record["data_sha256"] == sha256(done / "data/processed/squares.npz")
        assert record["seeds"] == ([3] if item.startswith(("sweep", "sensitivity", "optimise")) else [3, 4])
        assert record["device"].startswith("CPU (")
        assert record["seconds"] > 0
        assert (done / ".tracking" / record["tracking_run"]).is_dir()


def test_headline_numbers_are_few_and_are_those_of_the_record(done: Path) -> None:
    """Nested as in the record, means without spread, four digits."""
    without = ("regression_sets", "attention_sets", "equivariance")  # of parts, or of a model that collapsed
    paths = sorted((done / "reports/small/results").rglob("*.json"))
    assert len(paths) > 30
    for path in paths:
        content, record = json.loads(path.read_text()), flat(load_record(path))
        del content[RECORD]
        shown = flat(content)
        assert shown == {name: float(f"{record[name]:.4g}") for name in shown}
        assert path.parent.name in without or 1 <= len(shown) <= 16, path
        assert not {"provenance", "study", "seconds"} & content.keys()


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


def test_a_posterior_study_cut_in_its_second_training_goes_on(
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
    ours, theirs = (result(folder, "posterior/capsules") for folder in (root, done))
    assert ours["guide"] == theirs["guide"], "to the bit"
