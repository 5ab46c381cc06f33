"""Starts, stops and describes the tracking server of a team.

Its folder has

    postgres/        PostgreSQL's data and log
    pgpass           the database's password, which is in no address and in no argument
    admin_password   the password of MLflow's first user, `admin`, unless it was given
    secret_key       with which MLflow signs its forms
    basic_auth.ini   MLflow's settings for users
    artifacts/       figures, pages and weights of the runs, unless an S3-like store has them
    mlflow.log

The database `mlflow` has the runs, and `mlflow_users` the users with hashes of their passwords.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.locks import single_instance
from pipeline.server.files import end_of, write_secret
from pipeline.server.postgres import Postgres

if TYPE_CHECKING:
    from psutil import Process

ADMIN = "admin"
PASSWORD = "MLFLOW_AUTH_ADMIN_PASSWORD"
KNOWN_PASSWORDS = ("password1234", "password", "admin")
"""Earlier versions of MLflow came with the first."""
MIN_LENGTH = 12

RUNS, USERS = "mlflow", "mlflow_users"
MARK = "CAPSULES_SERVER"
"""The environment variable by which the server's processes are found: its folder."""
START_SECONDS = 180.0
STOP_SECONDS = 20.0
WORKERS = 2


class ServerError(UserError):
    """The server cannot be started with this folder, these settings or on this machine."""


@dataclass(frozen=True)
class Status:
    """What runs of a server: ports of PostgreSQL and MLflow; None if one does not run."""

    database: int | None
    mlflow: int | None

    @property
    def is_up(self) -> bool:
        return self.database is not None and self.mlflow is not None


def start(
    folder: Path, port: int = 5000, artifacts: str | None = None, hosts: Sequence[str] = (), workers: int = WORKERS
) -> None:
    """Start PostgreSQL and MLflow on loopback, and wait until they answer; make them at the first time.

    What survived a crash is used (PostgreSQL) or ended (MLflow's processes).

    Args:
        artifacts: a folder or an address such as `s3://bucket/prefix`, with the store's settings in the environment
            (`MLFLOW_S3_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...); None: within `folder`.
        hosts: more names under which browsers and clients may address the server (the header `Host`).
        workers: MLflow's processes.

    Raises:
        ServerError: something is missing, the port is in use, the folder cannot be used or the password is bad; what
            was wrong is in the message, with the end of MLflow's log if there is one.
        DatabaseError: PostgreSQL is not installed or does not start.
        AlreadyRunningError: another process is starting or stopping it.
    """
    folder = folder.resolve()  # its processes are found by it, whatever link it was named by
    _check_packages(artifacts)
    database = Postgres(folder / "postgres")
    _ = database.programs  # missing ones are told before anything is written
    _prepare(folder)
    with _alone(folder):
        if status(folder).mlflow is not None:
            raise ServerError(f"the server of {folder} is already running")
        _end_processes(folder)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise ServerError(f"port {port} is in use: choose another one with --port")
        given = os.environ.get(PASSWORD)
        if given is not None:
            check_password(given)
        elif not database.exists and not (folder / "admin_password").exists():
            write_secret(folder / "admin_password", secrets.token_urlsafe(18) + "\n")
        _admin_password(folder)  # if it is not known, this is said before anything is started
        if not database.exists:
            database.create()
        database.start()
        for name in (RUNS, USERS):
            database.create_database(name)
        write_secret(folder / "basic_auth.ini", _users_settings(database))
        allowed = ["127.0.0.1:*", "localhost:*", *hosts]  # any port: tunnels begin at another one
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", str(workers), "--app-name", "basic-auth", "--allowed-hosts", ",".join(allowed)),
            *("--backend-store-uri", database.address(RUNS)),
            *("--artifacts-destination", artifacts or str(folder / "artifacts")),
        ]
        _start_mlflow(folder, command, database.password_file, port)


def stop(folder: Path) -> bool:
    """Stop MLflow and PostgreSQL; whether any of them ran.

    Raises:
        ServerError: there is no server in this folder.
        AlreadyRunningError: another process is starting or stopping it.
    """
    folder = folder.resolve()
    _check_folder(folder)
    with _alone(folder):
        ran = _end_processes(folder)
        database = Postgres(folder / "postgres")
        ran = ran or database.port is not None
        database.stop()
    return ran


def status(folder: Path) -> Status:
    """What runs of the server in this folder."""
    folder = folder.resolve()
    import psutil

    port = None
    for process in _processes(folder):
        with suppress(psutil.Error):  # it may end meanwhile
            words = process.cmdline()
            if "uvicorn" in words and "--port" in words:
                port = int(words[words.index("--port") + 1])
    return Status(Postgres(folder / "postgres").port, port)


def add_user(folder: Path, name: str) -> str:
    """Make a user with a random password, which is returned and kept nowhere. The server must run.

    Raises:
        ServerError: the server does not run or does not answer, there is such a user, or the administrator's password
            is not known here.
    """
    port = status(folder).mlflow
    if port is None:
        raise ServerError(f"the server of {folder} does not run: start it first")
    import requests

    password = secrets.token_urlsafe(18)
    try:
        answer = requests.post(
            f"http://127.0.0.1:{port}/api/2.0/mlflow/users/create",
            json={"username": name, "password": password},
            auth=(ADMIN, _admin_password(folder)),
            timeout=60,
        )
    except requests.RequestException as error:
        raise ServerError(f"the server of {folder} does not answer: {error}") from None
    if answer.status_code != 200:
        raise ServerError(f"no user {name} was made: {answer.text[:300]}")
    return password


def check_password(password: str) -> None:
    """Refuse passwords that everybody knows or that are short. Raises `ServerError`."""
    if password in KNOWN_PASSWORDS:
        raise ServerError(f"{PASSWORD} is a password that everybody knows: choose another one")
    if len(password) < MIN_LENGTH:
        raise ServerError(f"{PASSWORD} must have {MIN_LENGTH} characters or more")


def _check_packages(artifacts: str | None) -> None:
    needed = ["mlflow", "flask_wtf", "psycopg2", *(["boto3"] if (artifacts or "").startswith("s3://") else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ServerError(f"not installed: {', '.join(missing)}. Run pip install '.[server]'")


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Hold the server's lock: of two starts at once, the second would end the processes of the first."""
    return single_instance(folder / "server.lock", f"`server start` or `server stop` of {folder}")


def _check_folder(folder: Path) -> None:
    if not (folder / "secret_key").exists():
        raise ServerError(f"{folder} is not the folder of a server")


def _prepare(folder: Path) -> None:
    """Make the folder and the key, unless they are there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "secret_key").exists():
            return
        if any(folder.iterdir()):
            raise ServerError(f"{folder} is not empty and is not the folder of a server: name another one")
        # As root, PostgreSQL's user has to get through.
        folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
        write_secret(folder / "secret_key", secrets.token_urlsafe(32))
    except OSError as error:
        raise ServerError(f"{folder} cannot be used: {error.strerror}") from error


def _users_settings(database: Postgres) -> str:
    # With EDIT, everybody can add runs to the experiments of the others, but delete only what is their own.
    # MLflow checks the password at every request, which takes a third of a second of a core: right ones are remembered
    # for a minute. So a changed password works for a minute longer.
    lines = [
        "[mlflow]",
        "default_permission = EDIT",
        f"database_uri = {database.address(USERS)}",
        f"admin_username = {ADMIN}",
        "auth_cache_ttl_seconds = 60",
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth",
    ]
    return "\n".join(lines) + "\n"


def _admin_password(folder: Path) -> str:
    if given := os.environ.get(PASSWORD):
        return given
    try:
        return (folder / "admin_password").read_text().strip()
    except OSError:
        raise ServerError(f"the password of {ADMIN} is not known here: set {PASSWORD}") from None


def _start_mlflow(folder: Path, command: list[str], password_file: Path, port: int) -> None:
    settings = {
        MARK: str(folder),
        PASSWORD: _admin_password(folder),
        "PGPASSFILE": str(password_file),
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "basic_auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": (folder / "secret_key").read_text(),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    # This process's own settings as a client of MLflow are not the server's.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_TRACKING_")}
    log = folder / "mlflow.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**inherited, **settings}, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            _end_processes(folder)
            raise ServerError(f"MLflow does not start; {log} ends with\n{end_of(log)}")
        time.sleep(0.2)
    process.returncode = 0  # nobody waits for it: no warning by Python that it still runs


def _answers(port: int) -> bool:
    import requests

    try:
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def _processes(folder: Path) -> list[Process]:
    """MLflow's processes of this folder, also those whose parent was killed."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _end_processes(folder: Path) -> bool:
    """End MLflow's processes of this folder, in order, or by force after `STOP_SECONDS`; whether there were any."""
    import psutil

    processes = _processes(folder)
    serving = []
    for process in processes:
        with suppress(psutil.Error):
            # The command `mlflow server` only waits for what it started, and takes long to end after it.
            if process.cmdline()[1:4] != ["-m", "mlflow", "server"]:
                serving.append(process)
            process.send_signal(signal.SIGTERM)
    psutil.wait_procs(serving, timeout=STOP_SECONDS)
    for process in _processes(folder):
        with suppress(psutil.Error):
            process.kill()
            process.wait(STOP_SECONDS)
    return bool(processes)
