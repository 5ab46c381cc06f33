"""What the team's server refuses before it starts anything."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.locks import AlreadyRunningError, single_instance
from pipeline.server import postgres, team
from pipeline.server.files import write_secret
from pipeline.server.postgres import DatabaseError, Postgres
from pipeline.server.team import PASSWORD, ServerError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that seems to have all packages, and PostgreSQL 13 and 15."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path / "postgresql")
    for version in ("9.6", "13", "15"):
        programs = tmp_path / "postgresql" / version / "bin"
        programs.mkdir(parents=True)
        (programs / "initdb").touch()
    return tmp_path


@pytest.mark.parametrize("password", ["password1234", "short", ""])
def test_a_password_that_is_known_or_short_is_refused(
    password: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, password)
    with pytest.raises(ServerError, match=f"{PASSWORD} (is a password that everybody knows|must have 12 characters)"):
        team.start(installed / "server", port=free_port())
    assert not (installed / "server" / "postgres").exists()


def test_after_a_refused_password_the_server_starts_with_one_of_its_own(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed / "server"
    monkeypatch.setenv(PASSWORD, "short")
    with pytest.raises(ServerError, match="12 characters"):
        team.start(folder, port=free_port())
    monkeypatch.delenv(PASSWORD)
    monkeypatch.setattr(Postgres, "create", lambda self: (_ for _ in ()).throw(DatabaseError("enough")))
    with pytest.raises(DatabaseError, match="enough"):
        team.start(folder, port=free_port())
    password = (folder / "admin_password").read_text()
    assert len(password) > team.MIN_LENGTH
    with pytest.raises(DatabaseError, match="enough"):
        team.start(folder, port=free_port())
    assert (folder / "admin_password").read_text() == password


def test_a_server_is_found_by_a_link_to_its_folder_too(tmp_path: Path) -> None:
    folder, link = tmp_path / "server", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    command = [sys.executable, "-c", "import time; time.sleep(60)", "uvicorn", "--port", "5017"]
    with subprocess.Popen(command, env={team.MARK: str(folder)}) as process:
        try:
            deadline = time.monotonic() + 10
            while team.status(link).mlflow != 5017 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert team.status(link).mlflow == team.status(folder).mlflow == 5017
        finally:
            process.kill()


def test_a_database_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Postgres(tmp_path / "postgres")
    database.programs = tmp_path
    monkeypatch.setattr(Postgres, "port", 5432)
    with pytest.raises(DatabaseError, match=f"cannot run {tmp_path}/psql: No such file or directory"):
        database.create_database("mlflow")
    (tmp_path / "psql").write_text("#!/bin/sh\necho 'password authentication failed' >&2\nexit 2\n")
    (tmp_path / "psql").chmod(0o755)
    with pytest.raises(DatabaseError, match="psql failed: password authentication failed"):
        database.create_database("mlflow")


def test_a_database_that_only_begins_to_start_has_no_port(installed: Path) -> None:
    database = Postgres(installed / "cluster")
    programs, data = installed / "postgresql/15/bin", database.folder / "data"
    (programs / "pg_ctl").write_text("#!/bin/sh\n")
    (programs / "pg_ctl").chmod(0o755)
    data.mkdir(parents=True)
    database._owner = None  # type: ignore[misc]
    assert database.port is None
    (data / "postmaster.pid").write_text("1234\n/data\n")
    assert database.port is None
    (data / "postmaster.pid").write_text("1234\n/data\n1790000000\n5433\n")
    assert database.port == 5433


def test_a_port_in_use_is_told(installed: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} is in use: choose another one with --port"):
            team.start(installed / "server", port=port)


def test_of_two_starts_at_once_the_second_ends_nothing(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, ended = installed / "server", []
    folder.mkdir()
    (folder / "secret_key").write_text("key")
    monkeypatch.setattr(team, "_end_processes", ended.append)
    with single_instance(folder / "server.lock", "the first"):
        for begin in (team.start, team.stop):
            with pytest.raises(AlreadyRunningError, match=rf"server start.*{folder} is already running"):
                begin(folder)
    assert not ended


def test_a_folder_with_something_else_or_none_is_refused(installed: Path) -> None:
    (installed / "mine").mkdir()
    (installed / "mine" / "thesis.tex").touch()
    with pytest.raises(ServerError, match="is not empty and is not the folder of a server"):
        team.start(installed / "mine", port=free_port())
    with pytest.raises(ServerError, match=r"cannot be used: Not a directory"):
        team.start(installed / "mine" / "thesis.tex" / "server", port=free_port())
    with pytest.raises(ServerError, match="is not the folder of a server"):
        team.stop(installed / "mine")
    with pytest.raises(ServerError, match="does not run: start it first"):
        team.add_user(installed / "mine", "grace")


def test_missing_packages_are_named(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("psycopg2", "boto3") else name)
    with pytest.raises(ServerError, match=r"not installed: psycopg2\. Run pip install '\.\[server\]'"):
        team.start(installed / "server")
    with pytest.raises(ServerError, match="not installed: psycopg2, boto3"):
        team.start(installed / "server", artifacts="s3://bucket")


def test_a_missing_postgresql_is_told_with_the_command_that_installs_it(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Postgres(installed / "postgres").programs == installed / "postgresql/15/bin", "the newest"
    data = installed / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("13\n")
    assert Postgres(installed / "postgres").programs == installed / "postgresql/13/bin", "the one that made the data"
    shutil.rmtree(installed / "postgresql" / "13")
    with pytest.raises(DatabaseError, match=r"PostgreSQL-13 is not installed: apt install postgresql-13$"):
        _ = Postgres(installed / "postgres").programs
    shutil.rmtree(installed / "postgresql")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DatabaseError, match=r"PostgreSQL is not installed: apt install postgresql$"):
        team.start(installed / "server")
    assert not (installed / "server").exists()


def test_a_secret_is_never_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_secret(path, "new")
    assert path.read_text() == "new"
    assert stat.filemode(path.stat().st_mode) == "-rw-------"


def test_the_commands_say_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["pipeline", "server", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert run("status", str(tmp_path)) == 1
    assert capsys.readouterr().out == "MLflow      not running\nPostgreSQL  not running\n"
    assert run("stop", str(tmp_path)) == 1
    assert capsys.readouterr().err == f"error: {tmp_path} is not the folder of a server\n"
    assert run("add-user", str(tmp_path), "grace") == 1
    assert "does not run: start it first" in capsys.readouterr().err


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
