"""Remotes of DVC on this machine: a folder, S3 (moto's server), ssh (Debian's, if it is installed) and a web server."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from remotes import Remote
from servers import BUCKET, S3_CREDENTIALS, Bucket, free_port, s3_server, serving


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Remote:
    """A folder, as on a network file system."""
    place = tmp_path_factory.mktemp("shared") / "a folder"
    return Remote(str(place), objects=place)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A bucket of an S3-like store."""
    if importlib.util.find_spec("dvc_s3") is None:
        pytest.skip("dvc-s3 is not installed: pip install '.[sharing]'")
    with s3_server(tmp_path_factory.mktemp("moto")) as address:
        objects = Bucket(address, S3_CREDENTIALS, "capsules")
        yield Remote(f"s3://{BUCKET}/capsules", {"endpointurl": address}, S3_CREDENTIALS, objects)


SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM yes
PidFile none
PasswordAuthentication no
Subsystem sftp internal-sftp
"""


@pytest.fixture(scope="session")
def ssh() -> Iterator[Remote]:
    """An ssh server without privileges: as nobody if the tests run as root, else as the user, who can log in alone."""
    server = shutil.which("sshd", path=os.pathsep.join((os.environ["PATH"], "/usr/sbin")))
    if server is None or shutil.which("ssh-keygen") is None:
        pytest.skip("there is no sshd: apt install openssh-server")
    if importlib.util.find_spec("dvc_ssh") is None:
        pytest.skip("dvc-ssh is not installed: pip install '.[sharing]'")
    with TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        place = Path(name)
        place.chmod(0o711)
        yield from serve_ssh(server, place)


def serve_ssh(server: str, place: Path) -> Iterator[Remote]:
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    shutil.copy(place / "client.pub", place / "authorized")
    (place / "config").write_text(SSHD.format(port=port, folder=place))
    store = place / "store"
    store.mkdir()
    is_root = os.geteuid() == 0
    account = pwd.getpwnam("nobody") if is_root else pwd.getpwuid(os.geteuid())
    if is_root:
        for path in (store, place / "host"):
            os.chown(path, account.pw_uid, account.pw_gid)
    who: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if is_root else {}
    with serving([server, "-D", "-e", "-f", str(place / "config")], port, place / "log", **who):
        address = f"ssh://{account.pw_name}@127.0.0.1:{port}{store}"
        yield Remote(address, {"keyfile": str(place / "client")}, objects=store)


@pytest.fixture(scope="session")
def web(folder: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A static web server, which serves what is pushed to the folder."""
    Path(folder.url).mkdir(exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", folder.url]
    with serving(command, port, tmp_path_factory.mktemp("web") / "log"):
        yield Remote(f"http://127.0.0.1:{port}", objects=folder.objects)
