"""A PostgreSQL of one's own: made in a folder, listening on loopback only, with a password for every connection.

PostgreSQL refuses to run as root. If this process is root's, PostgreSQL runs as Debian's user `postgres`.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.server.files import end_of, write_secret

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian installs every version's programs, in `<version>/bin`."""

USER = "mlflow"
SECONDS = 60


class DatabaseError(UserError):
    """PostgreSQL is missing, or does not start."""


@dataclass
class Postgres:
    """One cluster of databases in `folder`, whose parent has the file with its password."""

    folder: Path

    @property
    def password_file(self) -> Path:
        """In libpq's format: programs that have `PGPASSFILE` need no password in their arguments or addresses."""
        return self.folder.parent / "pgpass"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def exists(self) -> bool:
        return self.password_file.exists()

    @cached_property
    def programs(self) -> Path:
        """The folder of PostgreSQL's programs: of the version that made the cluster, else of the newest.

        Raises:
            DatabaseError: they are not installed.
        """
        try:
            wanted = (self.folder / "data" / "PG_VERSION").read_text().strip()
        except OSError:
            wanted = "*"
        found = [path for path in DEBIAN.glob(f"{wanted}/bin") if (path / "initdb").exists()]
        if found:
            return max(found, key=lambda path: float(path.parent.name))
        if wanted == "*" and (other := shutil.which("initdb")):
            return Path(other).resolve().parent
        version = "" if wanted == "*" else f"-{wanted}"
        raise DatabaseError(f"PostgreSQL{version} is not installed: apt install postgresql{version}")

    @property
    def port(self) -> int | None:
        """The port on which it listens; None if it does not run."""
        if not self._data.exists() or self._call("pg_ctl", "status", "-D", str(self._data), check=False).returncode:
            return None
        try:
            return int((self._data / "postmaster.pid").read_text().splitlines()[3])
        except (OSError, IndexError, ValueError):  # it has just ended, or only begins to start
            return None

    def address(self, database: str) -> str:
        """SQLAlchemy's address of a database, without the password. It must run."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make the cluster, with a random password.

        Raises:
            DatabaseError: PostgreSQL is not installed, or cannot write here.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)  # of an attempt that was interrupted
        password = secrets.token_urlsafe(24)
        given = self.folder / "password"
        write_secret(given, password)
        for path in (self.folder, given):
            self._give(path)
        try:
            options = ("-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions")
            self._call("initdb", "-D", str(self._data), "-U", USER, f"--pwfile={given}", *options)
        finally:
            given.unlink()
        write_secret(self.password_file, f"127.0.0.1:*:*:{USER}:{password}\n")

    def start(self) -> None:
        """Start it on a free port, unless it runs, and wait until it answers.

        Raises:
            DatabaseError: it does not start; the message has the end of its log.
        """
        if self.port is not None:
            return
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories=''"
        started = self._call(
            *("pg_ctl", "start", "-w", "-t", str(SECONDS), "-D", str(self._data), "-l", str(self.log), "-o", options),
            check=False,
        )
        if started.returncode:
            raise DatabaseError(f"PostgreSQL does not start; {self.log} ends with\n{end_of(self.log)}")

    def stop(self) -> None:
        """Stop it, if it runs; connections are closed."""
        if self.port is not None:
            self._call("pg_ctl", "stop", "-w", "-t", str(SECONDS), "-m", "fast", "-D", str(self._data))

    def create_database(self, name: str) -> None:
        """Make a database, unless there is one of this name. It must run.

        Raises:
            DatabaseError: it refuses; the message says why.
        """
        connection = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-w")
        # Not as the cluster's owner, who cannot read the password.
        settings = {**os.environ, "PGPASSFILE": str(self.password_file)}

        def said_by(program: str, *arguments: str) -> str:
            command = [str(self.programs / program), *connection, *arguments]
            try:
                done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
            except OSError as error:
                raise DatabaseError(f"cannot run {command[0]}: {error.strerror}") from None
            if done.returncode:
                raise DatabaseError(f"{program} failed: {done.stderr.strip()}")
            return done.stdout

        if name not in said_by("psql", "-d", "postgres", "-Atc", "SELECT datname FROM pg_database").split():
            said_by("createdb", name)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @cached_property
    def _owner(self) -> pwd.struct_passwd | None:
        """Who runs PostgreSQL, if that is not this process's user."""
        if os.geteuid() != 0:
            return None
        try:
            return pwd.getpwnam("postgres")
        except KeyError:
            raise DatabaseError(
                "PostgreSQL does not run as root, and there is no user postgres: start the server as another user"
            ) from None

    def _give(self, path: Path) -> None:
        if self._owner is not None:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)

    def _call(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's programs as the owner of the cluster."""
        who: dict[str, Any] = {}
        if self._owner is not None:
            who = {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        # To a file: a server that is started keeps the output open.
        with (self.folder / "last-command.log").open("w+") as output:
            done = subprocess.run(
                [str(self.programs / program), *arguments], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, cwd="/", env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, text=True,
                check=False, **who,
            )  # fmt: skip
            output.seek(0)
            said = output.read().strip()
        if check and done.returncode:
            raise DatabaseError(f"{program} failed: {said}")
        return done
