"""`python -m pipeline ui`: MLflow's own server, for this machine only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from commands import wait_for
from servers import accepts, free_port, serving

from pipeline.tracking import TrackedRun

ROOT = Path(__file__).parents[2]


def test_runs_are_sent_and_shown_to_this_machine_only_on_a_port_that_is_free(
    filled_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CAPSULES_MLFLOW", "on"), ("PYTHONPATH", str(ROOT)), ("MLFLOW_TRACKING_URI", "http://other")):
        monkeypatch.setenv(name, value)
    (tmp_path / "params.yaml").touch()
    shutil.copy(filled_database, tmp_path / "mlflow.db")
    views = {"mlflow.sharedViewState.trainings": "{}"}
    TrackedRun(tmp_path / ".tracking", "capsules/quick", "train@x", experiment_tags=views).finish()
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "pipeline", "ui", "--port", str(port)]
    refused = []

    def try_another() -> None:
        refused.append(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False))

    with serving(command, port, log, lambda: "viewStateShareKey" in log.read_text(), cwd=tmp_path):
        try_another()  # while the first one starts
        wait_for(lambda: accepts(port))
        listening = [each.laddr for each in psutil.net_connections("tcp") if each.status == "LISTEN"]
        assert {address.ip for address in listening if address.port == port} == {"127.0.0.1"}
        printed = log.read_text()
        assert "train-x" in printed, "the run was sent"
        assert f"http://127.0.0.1:{port}/#/experiments/1/runs?viewStateShareKey=trainings" in printed
        try_another()
    for second in refused:
        assert second.returncode == 1
        assert f"port {port}" in second.stderr
        assert "make ui PORT=" in second.stderr
        assert second.stdout == "", "no link to what another server shows"
