"""A whole server: PostgreSQL, MLflow with passwords and an S3-like store, and the project's own deliveries to it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
import requests
from servers import BUCKET, S3_CREDENTIALS, Bucket, free_port, s3_server

from pipeline.server import team
from pipeline.server.postgres import DatabaseError, Postgres
from pipeline.tracking import Group, Store, TrackedRun

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PASSWORD = "a password of this test"
SEARCH = "/api/2.0/mlflow/runs/search"
DEFAULT = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"

WRITE = """
import os, sys
from pathlib import Path
from pipeline.tracking import Delivery, Group, Store, TrackedRun
from pipeline.tracking.store import StoreError
folder, uri, name = Path(sys.argv[1]), *sys.argv[2:]
for number in range(3):
    run = TrackedRun(folder, experiment="capsules/team", name=f"{name}-{number}", params={"number": number},
                     group=Group(name, name))
    for step in range(20):
        run.log_metrics({"bound": number + step / 100}, step)
    (folder / "curve.svg").write_text("<svg/>")
    run.log_artifact(folder / "curve.svg", "figures")
    run.finish()
print("ready", flush=True)
sys.stdin.readline()
password = os.environ["MLFLOW_TRACKING_PASSWORD"]
os.environ["MLFLOW_TRACKING_PASSWORD"] = "wrong"
try:
    list(Delivery(folder, Store(uri)).run())
except StoreError as error:
    assert "You are not authenticated" in str(error)
    print("refused", flush=True)
os.environ["MLFLOW_TRACKING_PASSWORD"] = password
assert len(list(Delivery(folder, Store(uri)).run())) == 3
"""


@dataclass
class Server:
    folder: Path
    port: int
    artifacts: str
    bucket: Bucket

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        team.start(self.folder, self.port, self.artifacts, hosts=["tracking.example.org"], workers=1)

    def get(self, path: str, password: str | None = PASSWORD, **headers: str) -> requests.Response:
        return requests.get(
            f"{self.address}{path}", auth=None if password is None else ("admin", password), headers=headers, timeout=60
        )

    def runs(self, prefix: str) -> list[Any]:
        """The runs of the experiment `capsules/team` whose names begin so."""
        auth = ("admin", PASSWORD)
        path = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=capsules/team"
        found = self.get(path)
        if found.status_code != 200:
            return []
        query = {"experiment_ids": [found.json()["experiment"]["experiment_id"]], "max_results": 100}
        listed = requests.post(f"{self.address}{SEARCH}", json=query, auth=auth, timeout=60).json().get("runs", [])
        return [run for run in listed if run["info"]["run_name"].startswith(prefix)]

    def history(self, run: Any, key: str) -> list[tuple[int, float]]:
        path = f"/api/2.0/mlflow/metrics/get-history?run_id={run['info']['run_id']}&metric_key={key}"
        return [(int(each["step"]), each["value"]) for each in self.get(path).json().get("metrics", [])]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        team._check_packages("s3://")
        _ = Postgres(tmp_path_factory.mktemp("none") / "postgres").programs
    except (team.ServerError, DatabaseError) as error:
        pytest.skip(str(error))
    patch = pytest.MonkeyPatch()
    with s3_server(tmp_path_factory.mktemp("moto")) as s3, TemporaryDirectory() as name:
        Path(name).chmod(0o711)  # pytest's own folders are closed to the user that PostgreSQL runs as
        for key, value in {**S3_CREDENTIALS, "MLFLOW_S3_ENDPOINT_URL": s3, team.PASSWORD: PASSWORD}.items():
            patch.setenv(key, value)
        bucket = Bucket(s3, S3_CREDENTIALS)
        server = Server(Path(name) / "the server", free_port(), f"s3://{BUCKET}/artifacts", bucket)
        try:
            server.start()
            yield server
        finally:
            patch.undo()
            assert team.stop(server.folder)
            assert not team.status(server.folder).is_up
            assert not team.stop(server.folder), "nothing is left"


def wait_for(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def test_the_server_is_up_and_its_secrets_are_its_owners(server: Server) -> None:
    found = team.status(server.folder)
    assert found.mlflow == server.port
    assert found.is_up
    for name in ("pgpass", "secret_key", "basic_auth.ini"):
        assert stat.filemode((server.folder / name).stat().st_mode) == "-rw-------"
    assert not (server.folder / "admin_password").exists(), "it was given"
    secret = (server.folder / "pgpass").read_text().strip().rpartition(":")[2]
    assert len(secret) > 20
    commands = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert not [each for each in commands if secret in each or PASSWORD in each]
    with pytest.raises(team.ServerError, match="already running"):
        server.start()


def test_runs_and_users_have_databases_of_their_own(server: Server) -> None:
    database = Postgres(server.folder / "postgres")
    tables = {}
    for name in (team.RUNS, team.USERS):
        command = [database.programs / "psql", "-h", "127.0.0.1", "-p", str(database.port), "-U", "mlflow", "-w"]
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        for password_file in (database.password_file, Path("/dev/null")):
            asked = subprocess.run(
                [*command, "-d", name, "-Atc", query],
                env={**os.environ, "PGPASSFILE": str(password_file)},
                capture_output=True,
                text=True,
            )
            if password_file == database.password_file:
                tables[name] = set(asked.stdout.split())
            else:
                assert asked.returncode != 0, "nobody gets in without the password"
    assert {"runs", "metrics", "experiments"} <= tables[team.RUNS]
    assert "users" in tables[team.USERS]
    assert not {"users"} & tables[team.RUNS]


def test_nobody_gets_in_without_the_password(server: Server) -> None:
    for path in ("/", DEFAULT, "/api/2.0/mlflow-artifacts/artifacts?path=", "/graphql"):
        for password in (None, "password1234", "password", ""):
            assert server.get(path, password).status_code == 401, (path, password)
    assert server.get(DEFAULT).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "10.evil.example", "192.168.0.1:5000", "127.0.0.1.evil.example"])
def test_a_forged_host_is_refused_with_and_without_the_password(host: str, server: Server) -> None:
    """MLflow's default accepts names that begin with 10 or 192.168."""
    for path in ("/", DEFAULT, "/api/2.0/mlflow-artifacts/artifacts?path=", "/api/3.0/mlflow/server-info"):
        assert server.get(path, Host=host).status_code == 403, path
        assert server.get(path, None, Host=host).status_code in (401, 403), path
    for mine in (f"localhost:{server.port}", "127.0.0.1:6000", "tracking.example.org"):
        assert server.get(DEFAULT, Host=mine).status_code == 200


def test_two_users_who_deliver_at_once_lose_nothing(server: Server, tmp_path: Path) -> None:
    users = {"admin": PASSWORD, "grace": team.add_user(server.folder, "grace")}
    with pytest.raises(team.ServerError, match="no user grace was made"):
        team.add_user(server.folder, "grace")
    processes = []
    for user, password in users.items():
        folder = tmp_path / user
        folder.mkdir()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
            **{"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password, "PYTHONPATH": str(ROOT)},
        }
        command = [sys.executable, "-c", WRITE, str(folder), server.address, user]
        processes.append(
            subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.communicate("go\n", timeout=120)[0] == "refused\n"
        assert process.returncode == 0
    for user in users:
        runs = server.runs(f"{user}-")
        assert sorted(run["info"]["run_name"] for run in runs) == [f"{user}-{number}" for number in range(3)]
        assert {run["info"]["status"] for run in runs} == {"FINISHED"}
        assert len(server.runs(user)) == 4, "with the parent"
        for run in runs:
            number = int(run["info"]["run_name"][-1])
            assert server.history(run, "bound") == [(step, number + step / 100) for step in range(20)]
            objects = server.bucket.keys()
            key = run["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")
            assert f"artifacts/{key}/figures/curve.svg" in objects
    for password in users.values():
        assert not mentions(tmp_path, password)
        assert not mentions(server.folder, password)


def test_a_server_killed_and_restarted_in_mid_run_loses_nothing_and_has_nothing_twice(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both MLflow and PostgreSQL are killed; the run and its drainer go on."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    monkeypatch.delenv("CAPSULES_MLFLOW", raising=False)
    journals = tmp_path / ".tracking"
    run = TrackedRun(
        journals, experiment="capsules/team", name="long", store=Store(server.address), group=Group("long", "all of it")
    )
    try:
        run.log_metrics({"bound": 0.0}, 0)
        wait_for(lambda: any(server.history(each, "bound") for each in server.runs("long")))
        data = server.folder / "postgres" / "data" / "postmaster.pid"
        victims = [*team._processes(server.folder), psutil.Process(int(data.read_text().splitlines()[0]))]
        assert len(victims) >= 2
        for victim in victims:
            victim.send_signal(signal.SIGKILL)
        psutil.wait_procs(victims, timeout=30)
        assert team.status(server.folder) == team.Status(None, None)
        run.log_metrics({"bound": 1.0}, 1)
        log = next(journals.glob("drainer-*.log"))
        wait_for(lambda: "does not answer" in log.read_text())
        server.start()
        run.log_metrics({"bound": 2.0}, 2)
    finally:
        run.finish()
    wait_for(lambda: [each["info"]["status"] for each in server.runs("long")] == ["FINISHED"])
    (found,) = server.runs("long")
    assert server.history(found, "bound") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert len(server.runs("all of it")) == 1
    assert not mentions(journals, PASSWORD)
    for process in psutil.process_iter(["cmdline"]):
        if str(journals) in (process.info["cmdline"] or []):
            process.kill()


def mentions(folder: Path, secret: str) -> list[Path]:
    """The files that hold a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if secret.encode() in path.read_bytes()]
