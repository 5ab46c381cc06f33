"""The server of docs/tracking.md: its commands as they are written, but for ports and the folder."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

import pytest
import requests
from servers import free_port, serving

from pipeline.errors import UserError
from pipeline.tracking import Store, TrackedRun
from pipeline.tracking.delivery import Delivery

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAMS = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]
SEARCH_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], *PROGRAMS])


@dataclass
class Server:
    address: str
    folder: Path

    def get(self, path: str, password: str, **headers: str) -> requests.Response:
        return requests.get(f"{self.address}{path}", auth=("admin", password), headers=headers, timeout=60)


def run(script: str, folder: Path, **options: Any) -> None:
    """Run a block of commands, which must all succeed."""
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8"}
    with (folder / "output.txt").open("w+") as output:  # a file: what is started keeps it open
        words = ["bash", "-ec", script]
        code = subprocess.run(words, cwd=folder, env=environment, stdout=output, stderr=output, check=False, **options)
        output.seek(0)
        assert code.returncode == 0, output.read()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    for program in ("initdb", "pg_ctl", "createdb", "openssl", "curl"):
        if shutil.which(program, path=SEARCH_PATH) is None:
            pytest.skip(f"{program} is not installed: apt install postgresql openssl curl")
    ports = {"5000": str(free_port()), "5433": str(free_port())}
    text = (ROOT / "docs/tracking.md").read_text(encoding="utf-8")
    section = text.partition("# A server for a team\n")[2].partition("\n#")[0]
    blocks = [dedent(block) for block in re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)]
    for before, after in ports.items():
        blocks = [block.replace(before, after) for block in blocks]
    database, settings, start, add_user, _ = blocks
    who = pwd.getpwnam("postgres") if os.geteuid() == 0 else None  # PostgreSQL does not run as root
    owner: dict[str, Any] = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if who else {}
    with TemporaryDirectory() as name:
        folder = Path(name) / "tracking"
        folder.mkdir(mode=0o700)
        if who:
            Path(name).chmod(0o711)
            os.chown(folder, who.pw_uid, who.pw_gid)
        try:
            run(database, folder, **owner)
            run(settings, folder)
            environment = {"PATH": SEARCH_PATH, "HOME": name, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
            command = ["bash", "-ec", start.replace("mlflow server", "exec mlflow server --workers 1")]
            with serving(command, int(ports["5000"]), folder / "mlflow.log", cwd=folder, env=environment):
                run(add_user, folder)
                yield Server(f"http://127.0.0.1:{ports['5000']}", folder)
        finally:
            if (folder / "database").exists():
                run("pg_ctl stop -w -m fast -D database", folder, **owner)


def test_a_user_delivers_runs_and_nobody_else_gets_in(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=capsules/team"
    password = (server.folder / "admin_password").read_text().strip()
    for wrong in ("", "password1234", "a long password"):
        assert server.get(experiment, wrong).status_code == 401
    assert server.get(experiment, password, Host="10.evil.example").status_code == 403

    run = TrackedRun(tmp_path / "journals", experiment="capsules/team", name="mine")
    run.log_metrics({"bound": 0.5}, 1)
    (tmp_path / "curve.svg").write_text("<svg/>")
    run.log_artifact(tmp_path / "curve.svg", "figures")
    run.finish()
    delivery = Delivery(tmp_path / "journals", Store(server.address))
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "grace")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    with pytest.raises(UserError, match="You are not authenticated"):
        list(delivery.run())
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a long password")
    assert len(list(delivery.run())) == 1
    found = server.get(experiment, password)
    assert found.status_code == 200
    query = {"experiment_ids": [found.json()["experiment"]["experiment_id"]]}
    address = f"{server.address}/api/2.0/mlflow/runs/search"
    (shown,) = requests.post(address, json=query, auth=("admin", password), timeout=60).json()["runs"]
    assert (shown["info"]["run_name"], shown["info"]["status"]) == ("mine", "FINISHED")
    assert list((server.folder / "artifacts").rglob("curve.svg"))


def test_secrets_are_in_files_of_their_owner_only(server: Server) -> None:
    secrets = {name: (server.folder / name).read_text().strip() for name in ("password", "admin_password")}
    for name in (*secrets, "secret_key", "pgpass"):
        assert (server.folder / name).stat().st_mode & 0o077 == 0
    told = (server.folder / "mlflow.log").read_text() + (server.folder / "basic_auth.ini").read_text()
    assert not [secret for secret in secrets.values() if secret in told]
