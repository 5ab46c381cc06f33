"""Downloads against a server on this machine that misbehaves on request."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from commands import file_size_limit
from servers import free_port

from pipeline.data import sources
from pipeline.data.published import READERS
from pipeline.data.settings import PUBLISHED
from pipeline.data.sources import SOURCES, Source, fetch
from pipeline.errors import UserError
from pipeline.params import Params

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = "numbers.bin"


class Server(http.server.ThreadingHTTPServer):
    """Mirrors `url`/<name>/, each with one file in `contents`; `cuts` says, for each mirror, after how many bytes the
    connection breaks, one number a request; `seen` are the mirrors of all requests.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = {"good": CONTENT, "cut": CONTENT}
        self.cuts: dict[str, list[int]] = {}
        self.seen: list[str] = []

    def mirror(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        self.server.seen.append(name)
        body, cuts = self.server.contents[name], self.server.cuts.get(name)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: cuts.pop(0)] if cuts else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PAUSE", 0.0)
    monkeypatch.setattr(sources, "TIMEOUT", (2.0, 2.0))
    monkeypatch.setenv("NO_PROXY", "*")


@dataclass
class Place:
    """A toy source, registered as "toy", and the folder it is fetched into."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def fetch(self, *mirrors: str, mirror: str | None = None) -> Path:
        self.monkeypatch.setitem(SOURCES, "toy", Source(mirrors, {FILE: SHA256}))
        (path,) = fetch("toy", self.folder, mirror)
        return path

    @property
    def left(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path / "raw" / "toy", monkeypatch)


def test_a_good_mirror_gives_the_file_and_gives_it_again_only_if_it_is_damaged(server: Server, place: Place) -> None:
    path = place.fetch(server.mirror("good"))
    assert path.read_bytes() == CONTENT
    assert place.left == [place.folder / FILE]
    place.fetch(server.mirror("good"))
    assert server.seen == ["good"]
    path.write_bytes(CONTENT[:-1])
    assert place.fetch(server.mirror("good")).read_bytes() == CONTENT


def test_all_corrupt_names_the_file_and_both_hashes(server: Server, place: Place) -> None:
    wrong = CONTENT[:-1] + b"!"
    server.contents |= {"first": wrong, "second": b"not found, but politely"}
    with pytest.raises(UserError) as caught:
        place.fetch(server.mirror("first"), server.mirror("second"))
    message = str(caught.value)
    for part in (FILE, SHA256, hashlib.sha256(wrong).hexdigest(), "CAPSULES_MIRROR"):
        assert part in message
    assert place.left == []


def test_a_broken_connection_is_tried_again_and_given_up_for_another(server: Server, place: Place) -> None:
    server.cuts["cut"] = [1000] * 100
    with pytest.raises(UserError, match="connection broke"):
        place.fetch(server.mirror("cut"))
    assert place.left == []
    assert place.fetch(server.mirror("cut"), server.mirror("good")).read_bytes() == CONTENT
    assert server.seen.count("cut") == 2 * sources.ATTEMPTS
    (place.folder / FILE).unlink()
    server.cuts["cut"] = [100_000, 50_000]
    assert place.fetch(server.mirror("cut")).read_bytes() == CONTENT


def test_no_server_at_all_says_so_and_how_to_go_on(place: Place) -> None:
    with pytest.raises(UserError, match="is there a network"):
        place.fetch(f"http://127.0.0.1:{free_port()}/", "http://nowhere.invalid/")
    assert place.left == []


@pytest.mark.parametrize("mirror", ["s3://bucket", "http://[::1"])
def test_a_mirror_of_another_scheme_or_that_is_no_address_is_refused_by_name(
    server: Server, place: Place, mirror: str
) -> None:
    with pytest.raises(UserError, match=f"{re.escape(mirror)}: cannot be read"):
        place.fetch(server.mirror("good"), mirror=mirror)
    assert server.seen == []


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_local_mirror_comes_first(server: Server, place: Place, tmp_path: Path, form: str) -> None:
    own = tmp_path / "my data"
    (own / "toy").mkdir(parents=True)
    (own / "toy" / FILE).write_bytes(CONTENT)
    assert place.fetch(server.mirror("good"), mirror=form.format(own)).read_bytes() == CONTENT
    assert server.seen == []


def test_a_full_disk_is_named(server: Server, place: Place) -> None:
    with file_size_limit(100_000), pytest.raises(UserError, match="File too large"):
        place.fetch(server.mirror("good"))
    assert place.left == []
    assert place.fetch(server.mirror("good")).read_bytes() == CONTENT


def test_the_registry_has_a_hash_for_every_file() -> None:
    """Every source that parameters may name is there, and has files and mirrors, or says why not."""
    downloaded = get_args(get_args(Params.model_fields["sources"].annotation)[0])
    assert set(SOURCES) == set(downloaded)
    assert set(PUBLISHED) == set(READERS) == set(downloaded) - {"affnist"}
    for name, source in SOURCES.items():
        assert bool(source.mirrors) == (name not in ("smallnorb48", "smallnorb48-posed", "toys"))
        assert bool(source.files) == (name != "toys")
        assert all(len(sha256) == 64 and int(sha256, 16) >= 0 for sha256 in source.files.values())
        assert all(mirror.startswith("http") for mirror in source.mirrors if name != "digits")
        remote = [mirror.startswith("https://") for mirror in source.mirrors if mirror.startswith("http")]
        assert remote == sorted(remote, reverse=True), "encrypted mirrors come first"
