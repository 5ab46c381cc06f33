"""Where files lie, and which MLflow store is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ParamsError, UserError
from pipeline.layout import find_root, tracking_store
from pipeline.tracking import Store


def test_the_root_is_the_nearest_folder_with_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a repository"
    (root / "reports" / "quick").mkdir(parents=True)
    (root / "params.yaml").touch()
    monkeypatch.chdir(root / "reports" / "quick")
    assert find_root() == root
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParamsError, match=f"no params.yaml in {tmp_path} or above"):
        find_root()


def test_mlflow_is_a_local_file_a_named_store_or_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking_store(tmp_path) is None, "as in all tests"
    monkeypatch.setenv("CAPSULES_MLFLOW", "of")
    with pytest.raises(UserError, match="'of'"):
        tracking_store(tmp_path)
    monkeypatch.delenv("CAPSULES_MLFLOW")
    assert tracking_store(tmp_path) == Store(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_store(tmp_path) == Store("http://127.0.0.1:5000", None)
