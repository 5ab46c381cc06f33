"""Where files lie, and which MLflow store is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.layout import Layout, find_root, tracking_store
from pipeline.params import ParamsError


def test_the_root_is_the_nearest_folder_with_parameters_then_dvcs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "a repository"
    (root / "reports" / "quick").mkdir(parents=True)
    (root / "params.yaml").touch()
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "elsewhere"))
    assert find_root(root / "reports" / "quick") == root
    assert find_root(tmp_path) == tmp_path / "elsewhere"
    monkeypatch.delenv("DVC_ROOT")
    monkeypatch.chdir(root / "reports")
    assert find_root() == root
    with pytest.raises(ParamsError, match=f"no params.yaml in {tmp_path} or above"):
        find_root(tmp_path)


def test_profiles_share_no_file(tmp_path: Path) -> None:
    def paths(layout: Layout) -> set[Path]:
        return {
            layout.arrays_folder, layout.records_folder, layout.figures_folder, layout.tables_folder,
            layout.scorecard_path, layout.noise_path, layout.preview_path("digits"),
        }  # fmt: skip

    quick, paper = (paths(Layout(tmp_path, profile)) for profile in ("quick", "paper"))
    assert len(quick) == len(paper) == 7
    assert not quick & paper
    assert all(path.is_relative_to(tmp_path) for path in quick | paper)


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false", "no"])
def test_mlflow_can_be_switched_off(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULES_MLFLOW", word)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_store(tmp_path) is None


def test_a_named_store_comes_before_the_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPSULES_MLFLOW", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    local = tracking_store(tmp_path)
    assert local is not None
    assert (local.uri, local.artifacts) == (f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    server = tracking_store(tmp_path)
    assert server is not None
    assert (server.uri, server.artifacts) == ("http://127.0.0.1:5000", None)
