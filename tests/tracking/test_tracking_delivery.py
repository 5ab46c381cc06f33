"""Delivering journals to a real MLflow store: complete, never twice, and nothing is kept back by what fails."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pipeline.errors import UserError
from pipeline.operations.show_runs import send
from pipeline.tracking import Store, TrackedRun, delivery
from pipeline.tracking.delivery import Delivery

GROUP = {"id": "host-1-2", "name": "reproduction", "tags": {"commit": "abc"}}


def sync(folder: Path, store: Store) -> list[str]:
    """As `sync-mlflow` does: one pass by a process of its own."""
    return list(Delivery(folder / "runs", store).run())


def make_run(folder: Path, name: str = "train@x", **settings: Any) -> TrackedRun:
    described = {"experiment": "capsules/quick", "experiment_tags": {"note": "ours"}}
    return TrackedRun(folder / "runs", name=name, **described, **settings)


def make_all(folder: Path) -> tuple[TrackedRun, TrackedRun]:
    """A training and the stage that draws its figure, with everything that can be logged."""
    figure, weights = folder / "curve.svg", folder / "weights.safetensors"
    figure.write_text("<svg/>")
    weights.write_bytes(b"weights")
    many = {f"setting-{number}": number for number in range(250)}
    run = make_run(
        folder, params={"training": {"epochs": 2}, "long": "x" * 9000, **many}, tags={"stage": "train"}, group=GROUP
    )
    run.log_dataset("digits", "digits (scikit-learn)", "cd" * 32)
    for step in range(150):
        run.log_metrics({"bound": step - 3.0, "odd name!": math.nan, "up": math.inf}, step)
    run.log_tags({"device": "none yet"})
    run.log_tags({"device": "CPU"})
    run.log_artifact(weights, "model")
    run.finish()
    drawn = make_run(folder, "zfigures", group=GROUP, context="evaluation")
    drawn.log_dataset("digits", "digits (scikit-learn)", "cd" * 32)
    drawn.log_metrics({"claims/run": 81.0}, 0, of_group=True)
    drawn.log("params", of_group=True, params={"runs.vae.latent": 4})
    drawn.log_artifact(figure, "figures", of_group=True)
    for earlier in (run.id, "of-another-machine"):
        drawn.log_artifact(figure, "figures", of_run=earlier)
    drawn.log_tags({"mlflow.note.content": "# all"}, of_group=True)
    drawn.finish("FAILED")
    weights.write_bytes(b"others")  # the journal has its own
    return run, drawn


def check_all(reader: Any, run: TrackedRun, drawn: TrackedRun) -> None:
    """MLflow has everything of `make_all`, once."""
    runs = reader.runs()
    trained, figures, whole = runs["train@x"], runs["zfigures"], runs["reproduction"]
    assert len(reader.client.search_runs([trained.info.experiment_id])) == 3
    assert [each.info.status for each in (trained, figures, whole)] == ["FINISHED", "FAILED", "FAILED"]
    assert (trained.data.tags["tracking_run"], figures.data.tags["tracking_run"]) == (run.id, drawn.id)
    assert trained.data.params["setting-249"] == "249"
    assert trained.data.params["training.epochs"] == "2"
    assert trained.data.params["long"].startswith("xxx")
    assert len(trained.data.params) == 252
    assert reader.history(trained, "bound") == [(step, step - 3.0) for step in range(150)]
    assert math.isnan(trained.data.metrics["odd name_"])
    assert [trained.data.tags[key] for key in ("stage", "device", "group")] == ["train", "CPU", "reproduction"]
    for each, context in ((trained, "training"), (figures, "evaluation")):
        (used,) = each.inputs.dataset_inputs
        assert (used.dataset.name, [tag.value for tag in used.tags]) == ("digits", [context])
        assert each.data.tags["data.digits.sha256"] == "cd" * 32
        assert each.data.tags["mlflow.parentRunId"] == whole.info.run_id
    assert (whole.data.metrics, whole.data.params) == ({"claims/run": 81.0}, {"runs.vae.latent": "4"})
    assert [whole.data.tags[key] for key in ("mlflow.note.content", "commit", "stage")] == ["# all", "abc", "(all)"]
    curve = ["figures/curve.svg"]
    assert [reader.files(each, "figures") for each in (trained, figures, whole)] == [curve, [], curve]
    experiment = reader.client.get_experiment_by_name("capsules/quick")
    assert experiment.tags["note"] == "ours"
    kept = reader.client.download_artifacts(trained.info.run_id, "model/weights.safetensors")
    assert Path(kept).read_bytes() == b"weights"


def forget_positions(folder: Path) -> None:
    """As if the delivery had been killed before it wrote them."""
    for position in (folder / "runs").glob("*/delivered*"):
        position.unlink()


class Unreliable:
    """MLflow's client, which loses its server at its n-th call."""

    def __init__(self, client: Any, n: int) -> None:
        self._client, self.left = client, n

    def __getattr__(self, name: str) -> Any:
        self.left -= 1
        if self.left == 0:
            raise ConnectionError(f"gone at {name}")
        return getattr(self._client, name)


@pytest.mark.slow
def test_everything_arrives_once_whatever_fails_and_however_often_it_is_delivered(
    tmp_path: Path, store: Store, reader: Any
) -> None:
    run, drawn = make_all(tmp_path)
    for n in range(2, 40, 4):
        delivery = Delivery(tmp_path / "runs", store)
        delivery.client = Unreliable(delivery.client, n)
        with suppress(UserError):
            list(delivery.run())
        if n % 12 == 2:
            forget_positions(tmp_path)
    sync(tmp_path, store)
    check_all(reader, run, drawn)
    assert sync(tmp_path, store) == []
    forget_positions(tmp_path)
    assert sync(tmp_path, store) == [run.id, drawn.id]
    check_all(reader, run, drawn)


def test_a_killed_run_is_ended(tmp_path: Path, store: Store, reader: Any) -> None:
    killed = make_run(tmp_path)
    killed.log_metrics({"bound": 0.0}, 0)
    assert sync(tmp_path, store) == [killed.id]
    assert reader.runs()["train@x"].info.status == "RUNNING"
    with killed.journal.path.open("ab") as file:
        file.write(b'{"event": "metr')  # the kill costs only this line
    killed.journal.writer.release()  # no `end` is ever written
    sync(tmp_path, store)
    assert reader.runs()["train@x"].info.status == "KILLED"


def test_a_deleted_run_stays_deleted_and_an_experiment_comes_back(tmp_path: Path, store: Store, reader: Any) -> None:
    deleted, other = make_run(tmp_path, group=GROUP), make_run(tmp_path, "other", group=GROUP)
    for run in (deleted, other):
        run.log_metrics({"bound": 0.5}, 0)
    sync(tmp_path, store)
    for name in ("train@x", "reproduction"):
        reader.client.delete_run(reader.runs()[name].info.run_id)
    for run in (deleted, other):
        run.log_metrics({"bound": 0.7}, 1)
        run.log_metrics({"bound": 0.7}, 1, of_group=True)
        run.finish()
    assert sync(tmp_path, store) == [other.id]
    (found,) = reader.runs().values()
    assert (found.info.run_name, found.data.metrics, found.info.status) == ("other", {"bound": 0.7}, "FINISHED")
    reader.client.delete_experiment(found.info.experiment_id)
    make_run(tmp_path, "later").finish()
    sync(tmp_path, store)
    assert "later" in reader.runs()


def test_a_damaged_journal_or_an_odd_event_keeps_back_nothing_else(
    tmp_path: Path, store: Store, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd, headless = make_run(tmp_path, "odd"), make_run(tmp_path, "headless")
    odd.log_metrics({"bound": 0.0}, 0)
    odd.log("artifact", file="artifacts/ab/gone.svg", folder="")
    odd.log_metrics({"bound": 0.5}, 2)
    for run in (odd, headless):
        run.finish()
    for run, line in ((odd, 1), (headless, 0)):
        lines = [f"{line}\n" for line in run.journal.path.read_text().splitlines() if line]
        lines.insert(line, '[1, 2]\n{"event": "met\n')
        run.journal.path.write_text("".join(lines[run is headless :]).replace('"start"', '"strat"', run is headless))
    good = make_run(tmp_path, "good")
    good.finish()
    assert set(sync(tmp_path, store)) == {odd.id, good.id}
    assert sync(tmp_path, store) == []
    assert {name: run.info.status for name, run in reader.runs().items()} == {"odd": "FINISHED", "good": "FINISHED"}
    assert reader.history(reader.runs()["odd"], "bound") == [(0, 0.0), (2, 0.5)]
    assert caplog.text.count(f"of {odd.id}: ") == 1


def test_a_damaged_database_and_another_delivery_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path).finish()
    (tmp_path / "mlflow.db").write_text("half a database")
    damaged = Delivery(tmp_path / "runs", Store(f"sqlite:///{tmp_path / 'mlflow.db'}"))
    with pytest.raises(UserError, match=r"mlflow\.db cannot be read .*: move it away"):
        send(damaged)
    monkeypatch.setattr(delivery, "LOCK_SECONDS", 0.1)
    with FileLock(tmp_path / "runs" / "delivery.lock"), pytest.raises(UserError, match="another process is delivering"):
        send(damaged)


def test_a_dead_server_is_told_at_once_and_no_message_has_a_password(tmp_path: Path) -> None:
    make_run(tmp_path).finish()
    dead = Store("http://grace:secret@127.0.0.1:9/mlflow")
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:9/mlflow does not answer .* correct MLFLOW_TRACKING_URI"):
        sync(tmp_path, dead)

    class Client:
        def get_experiment_by_name(self, name: str) -> None:
            raise RuntimeError(f"API request to {dead.uri}/api and to https://a:secret@b/ failed: a@b")

    delivery = Delivery(tmp_path / "runs", Store("sqlite:///none"))
    delivery.client = Client()
    with pytest.raises(UserError, match="API request to http://127") as raised:
        list(delivery.run())
    assert "secret" not in str(raised.value)
