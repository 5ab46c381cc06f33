"""What MLflow shows besides numbers: a group's own run, models, the use of data sets, and the load of processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import Delivery, Group, Store, TrackedRun, sampling
from pipeline.tracking.journal import Journal
from pipeline.tracking.sampling import Sampler

GROUP = Group("host-1-2", "reproduction", {"commit": "abc"})


def sync(folder: Path, store: Store) -> None:
    list(Delivery(folder, store).run())


def make_run(folder: Path, **settings: Any) -> TrackedRun:
    return TrackedRun(folder, experiment="capsules/quick", name="tables", **settings)


def log_all(run: TrackedRun, page: Path) -> None:
    run.log_metrics({"seconds": 1.0}, 0)
    run.log_metrics({"claims/run": 81.0}, 0, of_group=True)
    run.log_metrics({"seconds": 2.0}, 1)
    run.log_tags({"mlflow.note.content": "# all"}, of_group=True)
    run.log_group_params({"runs": {"vae": {"latent": 4}}})
    run.log_artifact(page, of_group=True)
    run.finish()


def test_what_is_logged_of_a_group_is_its_own_runs(tmp_path: Path, store: Store, reader: Any) -> None:
    page = tmp_path / "index.html"
    page.write_text("<p>")
    run = make_run(tmp_path / "runs", group=GROUP)
    log_all(run, page)
    sync(tmp_path / "runs", store)
    look = reader(store)
    (parent,) = (each for each in look.runs() if "group_id" in each.data.tags)
    (child,) = (each for each in look.runs() if "group_id" not in each.data.tags)
    assert parent.data.metrics == {"claims/run": 81.0}
    assert look.history(child, "seconds") == [(0, 1.0), (1, 2.0)]
    assert set(child.data.metrics) == {"seconds"}
    assert (parent.data.tags["mlflow.note.content"], parent.data.tags["commit"]) == ("# all", "abc")
    assert "mlflow.note.content" not in child.data.tags
    assert (parent.data.params, child.data.params) == ({"runs.vae.latent": "4"}, {})
    listed = [[file.path for file in look.client.list_artifacts(each.info.run_id)] for each in (parent, child)]
    assert listed == [["index.html"], []]


def test_without_a_group_there_is_nothing_to_log_of_it(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("<p>")
    run = make_run(tmp_path / "runs")
    log_all(run, page)
    kinds = [event["event"] for event, _ in Journal(run.path).read()]
    assert kinds == ["start", "metrics", "metrics", "tags", "end"]


def test_a_file_is_logged_with_the_earlier_runs_that_it_belongs_to(tmp_path: Path, store: Store, reader: Any) -> None:
    """With those that MLflow has, which stay as they ended; a second delivery changes nothing."""
    figure = tmp_path / "learning.svg"
    figure.write_text("<svg>")
    trained, failed = (TrackedRun(tmp_path / "runs", experiment="capsules/quick", name=name) for name in ("a", "b"))
    for run, status in ((trained, "FINISHED"), (failed, "FAILED")):
        run.log_metrics({"loss": 1.0}, 0)
        run.finish(status)
    sync(tmp_path / "runs", store)
    drawn = make_run(tmp_path / "runs")
    drawn.log_artifact(figure, "figures", of_runs=[trained.id, failed.id, "of-another-machine"])
    drawn.log_artifact(figure, "figures", of_runs=[])
    drawn.finish()
    for _ in range(2):
        sync(tmp_path / "runs", store)
        (drawn.path / f"{store.key}.json").unlink()
    look, ended = reader(store), "FINISHED"
    runs = {run.info.run_name: run for run in look.runs()}
    assert {name: run.info.status for name, run in runs.items()} == {"a": ended, "b": "FAILED", "tables": ended}
    listed = {
        name: [file.path for file in look.client.list_artifacts(run.info.run_id, "figures")]
        for name, run in runs.items()
    }
    assert listed == {"a": ["figures/learning.svg"], "b": ["figures/learning.svg"], "tables": []}


def test_a_groups_metrics_do_not_hide_those_of_a_continued_run(tmp_path: Path) -> None:
    cut = make_run(tmp_path, group=GROUP)
    cut.log_metrics({"bound": 5.0}, 7, of_group=True)
    cut.finish("KILLED")
    again = make_run(tmp_path, group=GROUP)
    assert again.resume(cut.id)
    again.log_metrics({"bound": 1.0}, 3)
    *_, (last, _) = Journal(again.path).read()
    assert (last["event"], last["step"]) == ("metrics", 3)


@pytest.mark.parametrize("context", ["training", "evaluation"])
def test_a_data_set_is_logged_with_its_use(tmp_path: Path, store: Store, reader: Any, context: str) -> None:
    run = make_run(tmp_path / "runs", context=context)
    run.log_dataset("digits", "digits (scikit-learn)", "cd" * 32)
    run.finish()
    sync(tmp_path / "runs", store)
    (found,) = reader(store).runs()
    (used,) = found.inputs.dataset_inputs
    assert [(tag.key, tag.value) for tag in used.tags] == [("mlflow.data.context", context)]


def test_an_experiment_is_described_and_what_its_users_write_stays(tmp_path: Path, store: Store, reader: Any) -> None:
    def run_once(**tags: str) -> dict[str, str]:
        make_run(tmp_path / "runs", experiment_tags=tags).finish()
        sync(tmp_path / "runs", store)
        found: dict[str, str] = reader(store).client.get_experiment_by_name("capsules/quick").tags
        return {key: found.get(key, "") for key in tags}

    assert run_once(note="ours") == {"note": "ours"}
    experiment = reader(store).client.get_experiment_by_name("capsules/quick").experiment_id
    reader(store).client.set_experiment_tag(experiment, "note", "theirs")
    assert run_once(note="ours", view="{}") == {"note": "theirs", "view": "{}"}


def test_a_model_is_logged_once_with_its_card_and_numbers(tmp_path: Path, store: Store, reader: Any) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"weights")
    images = {"name": "images", "type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 1, 28, 28]}}
    card = {"variant": "vae", "loader": "load_run", "seeds": [0], "signature": {"inputs": [images]}}
    run = make_run(tmp_path / "runs")
    run.log_model("vae-digits", "vae", [weights], card, {"validation.bound": 3.0})
    weights.unlink()  # the journal has its own
    run.finish()
    sync(tmp_path / "runs", store)
    note = run.path / f"{store.key}.json"
    written = json.loads(note.read_text())
    note.write_text(json.dumps({**written, "offset": 0}))  # as if it had been killed before the note was written
    sync(tmp_path / "runs", store)

    look = reader(store)
    (found,) = look.runs()
    (model,) = look.client.search_logged_models([found.info.experiment_id])
    assert (model.name, model.model_type, str(model.status)) == ("vae-digits", "vae", "READY")
    assert model.source_run_id == found.info.run_id
    assert [(metric.key, metric.value) for metric in model.metrics] == [("validation.bound", 3.0)]
    assert [each.model_id for each in found.outputs.model_outputs] == [model.model_id]
    folder = Path(model.artifact_location.removeprefix("file://").replace("%20", " "))
    assert {path.name for path in folder.iterdir()} == {"MLmodel", "card.json", "weights.safetensors"}
    assert (folder / "weights.safetensors").read_bytes() == b"weights"
    assert json.loads((folder / "card.json").read_text()) == card
    from mlflow.models import Model

    loaded = Model.load(str(folder / "MLmodel"))
    assert loaded.signature.inputs.inputs[0].shape == (-1, 1, 28, 28)


# ---- the load of processes


@pytest.fixture
def every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_SECONDS", 0.0)


def here(process: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "process": process}


@pytest.mark.usefixtures("every_time")
def test_the_load_of_a_process_is_measured_from_outside() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        sampler = Sampler()
        assert sampler.sample("a", here(busy.pid)) == {}, "the first call starts the clock"
        deadline = time.monotonic() + 30
        values: dict[str, float] = {}
        while not values.get("system/process_cpu_percentage") and time.monotonic() < deadline:
            time.sleep(0.3)
            values = sampler.sample("a", here(busy.pid))
        busy.kill()
    assert values["system/process_cpu_percentage"] > 0
    assert values["system/process_memory_megabytes"] > 1
    assert sampler.sample("a", here(busy.pid)) == {}, "it is gone"
    assert sampler.sample("b", {"host": "elsewhere", "process": os.getpid()}) == {}
    assert sampler.sample("c", {}) == {}
    assert sampler.sample("d", here(os.getpid())) == {}
    assert sampler.sample("d", here(os.getpid())) != {}


@pytest.mark.usefixtures("every_time")
def test_another_process_that_continues_a_run_starts_the_clock_again() -> None:
    sampler = Sampler()
    for _ in range(2):
        values = sampler.sample("a", here(os.getpid()))
    assert values
    assert sampler.sample("a", here(os.getppid())) == {}


def test_samples_are_some_seconds_apart() -> None:
    sampler = Sampler()
    assert [sampler.sample("a", here(os.getpid())) for _ in range(3)] == [{}, {}, {}]


@pytest.mark.usefixtures("every_time")
def test_a_run_that_is_being_written_has_system_metrics_and_an_ended_one_gets_no_more(
    tmp_path: Path, store: Store, reader: Any
) -> None:
    run = make_run(tmp_path / "runs")
    run.log_metrics({"bound": 0.0}, 0)
    delivery = Delivery(tmp_path / "runs", store, Sampler())
    for _ in range(2):
        list(delivery.run())
    look = reader(store)
    (found,) = look.runs()
    assert found.data.metrics["system/process_memory_megabytes"] > 1
    count = len(look.history(found, "system/process_memory_megabytes"))
    run.finish()
    for _ in range(2):
        list(delivery.run())
    assert len(look.history(found, "system/process_memory_megabytes")) == count
