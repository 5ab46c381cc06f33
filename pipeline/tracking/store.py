"""The MLflow store, and the start of the process that delivers runs to it. MLflow itself is imported there only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from pipeline.errors import UserError


class StoreError(UserError):
    """The store cannot be used now, or rejected the data."""


@dataclass(frozen=True)
class Store:
    """Where MLflow keeps its runs.

    Args:
        uri: as in `MLFLOW_TRACKING_URI`.
        artifacts: folder of new experiments' artifacts; None: the server's default.
    """

    uri: str
    artifacts: Path | None = None

    @property
    def shown(self) -> str:
        """The address without user name and password."""
        return without_passwords(self.uri)

    @property
    def database(self) -> Path | None:
        """The file of an SQLite store."""
        return Path(self.uri.removeprefix("sqlite:///")) if self.uri.startswith("sqlite:///") else None

    def probe(self) -> None:
        """Check that a server answers within a few seconds. Raises `StoreError`, also for a folder."""
        if "://" not in self.uri or self.uri.startswith("file:"):
            raise StoreError(f"MLflow 3 keeps no runs in a folder such as {self.uri}: name a server or a database")
        if self.uri.startswith("http"):
            import requests

            try:
                requests.get(f"{self.uri.rstrip('/')}/health", timeout=3)
            except requests.RequestException as error:
                raise StoreError(f"MLflow at {self.shown} does not answer ({type(error).__name__})") from error

    def start_delivery(self, folder: Path) -> None:
        """Start the process that delivers the journals in `folder`, unless it runs and will see what was written."""
        try:
            with background_lock(folder).acquire(blocking=False):
                background_log(folder).write_text("")  # warnings of an earlier process may be out of date
        except TimeoutError:
            return
        search = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        with background_log(folder).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tracking.delivery", str(folder), str(self.artifacts or "")],
                cwd=folder.parent,  # import its code: this stage's may be in a copy that DVC soon deletes
                # The address is no argument: it may hold a password.
                env={**os.environ, "PYTHONPATH": search, "MLFLOW_TRACKING_URI": self.uri},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # signals from the stage's terminal must not reach it
            )
        process.returncode = 0  # nobody waits for it: no warning by Python that it still runs


def background_lock(folder: Path) -> FileLock:
    """The lock that the delivering process holds while it runs."""
    return FileLock(folder / "background.lock", thread_local=False)


def background_log(folder: Path) -> Path:
    """The file for what the delivering process has to tell the user, in lines that begin with `warning:` or `note:`."""
    return folder / "background.log"


def without_passwords(text: str) -> str:
    """A text on one line whose addresses have no user name and password any more: MLflow's errors have them."""
    return re.sub(r"//[^/\s]*@", "//", " ".join(text.split()))
