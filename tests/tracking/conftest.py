"""A real MLflow store, made once: filling a new one takes MLflow several seconds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import Store
from pipeline.tracking.delivery import Delivery


def sqlite_store(folder: Path) -> Store:
    return Store(f"sqlite:///{folder / 'mlflow.db'}", folder / "mlartifacts")


@pytest.fixture(scope="session")
def filled_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first store")
    (folder / "mlflow.db.new").write_bytes(b"half a database, whose maker was killed")
    (folder / "mlflow.db.new-journal").write_bytes(b"half a journal")
    Delivery(folder, sqlite_store(folder)).client.search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def store(filled_database: Path, tmp_path: Path) -> Store:
    folder = tmp_path / "with a space"
    folder.mkdir()
    shutil.copy(filled_database, folder / "mlflow.db")
    return sqlite_store(folder)


class Reader:
    """What a store holds, read with MLflow's own client."""

    def __init__(self, store: Store) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=store.uri)

    def runs(self) -> dict[str, Any]:
        """All runs by name, the latest of equal ones."""
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        found = self.client.search_runs(experiments, order_by=["attributes.start_time ASC"])
        return {run.info.run_name: run for run in found}

    def history(self, run: Any, key: str) -> list[tuple[int, float]]:
        return [(metric.step, metric.value) for metric in self.client.get_metric_history(run.info.run_id, key)]

    def files(self, run: Any, folder: str | None = None) -> list[str]:
        return [file.path for file in self.client.list_artifacts(run.info.run_id, folder)]


@pytest.fixture
def reader(store: Store) -> Reader:
    return Reader(store)
