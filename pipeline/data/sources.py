"""Sources of raw data: every file with its SHA-256, its size and its mirrors.

A file comes from the first mirror that serves content with the right hash. An interrupted download is kept and can be
continued from any mirror, because the hash of the complete file is checked. A mirror that sends more than
the file's size, or too slowly, is given up.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pooch
import requests
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from pipeline.errors import UserError
from pipeline.files import FileWriteError, write_text

MIRROR_VARIABLE = "CAPSULES_MIRROR"
"""Environment variable with the user's own mirror, which the stages pass to `fetch`."""

TIMEOUT = (10.0, 30.0)
"""Seconds to wait for a connection, and for the next bytes."""
ATTEMPTS = 4
"""Attempts per mirror if the connection breaks."""
PAUSE = 1.0
"""Seconds to wait before the next attempt."""
SLOWEST = 10_000
"""Bytes per second that a mirror must send on average."""
PATIENCE = 60.0
"""Seconds that a request may take in any case."""

_CHUNK = 1 << 16
_REMOTE = ("http", "https")
_OTHERS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_log = logging.getLogger(__name__)


class DownloadError(UserError):
    """No mirror serves a file with the right content. The message gives the reason for each."""


@dataclass(frozen=True)
class File:
    """What is known of a published file.

    Attributes:
        sha256: its hash, in hexadecimal.
        size: in bytes; an upper bound where the registry says so. Nothing larger is downloaded.
    """

    sha256: str
    size: int


@dataclass(frozen=True)
class Source:
    """Files that belong together.

    Attributes:
        mirrors: URLs (or folders) to which a file's name is appended, tried in this order. Empty if only the user's own
            mirror can have the files.
        files: hash and size of each file, by name.
        folder: folder with the files on the user's own mirror; if empty, the source's name.
        note: for a source without files: an explanation, written to its folder.
    """

    mirrors: tuple[str, ...]
    files: dict[str, File]
    folder: str = ""
    note: str = ""


def _packaged(package: str, folder: str) -> str:
    """A folder of data inside an installed package, located without importing the package."""
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec else None
    return str(Path(locations[0], folder)) if locations else f"{package} is not installed"


NORB_TRAINING = "smallnorb-5x46789x9x18x6x2x96x96-training"
NORB_TESTING = "smallnorb-5x01235x9x18x6x2x96x96-testing"
"""Prefixes of smallNORB's file names: categories x instances x elevations x azimuths x ..."""

_NORB_DAT, _NORB_CAT, _NORB_INFO = 450_000_000, 100_000, 400_000
"""Upper bounds: the files' sizes unpacked, rounded up, since gzip lengthens no file by more than a thousandth."""

_SMALLNORB48 = {
    "train.npz": File("b88f9fd1e4e60d5d24771e6474f3cb4a991dc179a98a16ae362d04d53f2cde9d", 39_345_717),
    "test.npz": File("6a6a6563c2337587493d06a098e45079b313af83999d18db4052ef2f7ad67ea4", 39_126_797),
}

NOTE = "README.txt"
"""The one file in the folder of a source without files."""

SOURCES = {
    "digits": Source(
        mirrors=(_packaged("sklearn", "datasets/data"),),
        files={"digits.csv.gz": File("09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22", 57_523)},
    ),
    "mnist": Source(
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        files={
            "train-images-idx3-ubyte.gz": File(
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422
            ),
            "train-labels-idx1-ubyte.gz": File(
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881
            ),
            "t10k-images-idx3-ubyte.gz": File(
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877
            ),
            "t10k-labels-idx1-ubyte.gz": File(
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542
            ),
        },
    ),
    "fashion-mnist": Source(
        mirrors=(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            # Without encryption, and so the last; a changed file would not pass the check of its hash.
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        files={
            "train-images-idx3-ubyte.gz": File(
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880
            ),
            "train-labels-idx1-ubyte.gz": File(
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515
            ),
            "t10k-images-idx3-ubyte.gz": File(
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102
            ),
            "t10k-labels-idx1-ubyte.gz": File(
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148
            ),
        },
    ),
    "affnist": Source(
        mirrors=("https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/",),
        # An upper bound: 32 batches of 10,000 images of 1600 bytes are 512 MB; as much again for what describes them.
        files={
            "test_batches.zip": File("83f829c01c021fa731e062e7671b0075a3e8de0a511fb6b5d403458528d0e0d1", 1_024_000_000)
        },
    ),
    "cifar10": Source(
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        files={
            "cifar-10-python.tar.gz": File(
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce", 170_498_071
            )
        },
    ),
    "smallnorb": Source(
        mirrors=("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",),
        files={
            f"{NORB_TRAINING}-dat.mat.gz": File(
                "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873", _NORB_DAT
            ),
            f"{NORB_TRAINING}-cat.mat.gz": File(
                "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa", _NORB_CAT
            ),
            f"{NORB_TRAINING}-info.mat.gz": File(
                "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32", _NORB_INFO
            ),
            f"{NORB_TESTING}-dat.mat.gz": File(
                "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474", _NORB_DAT
            ),
            f"{NORB_TESTING}-cat.mat.gz": File(
                "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff", _NORB_CAT
            ),
            f"{NORB_TESTING}-info.mat.gz": File(
                "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2", _NORB_INFO
            ),
        },
    ),
    # Not published anywhere: smallNORB decoded from JPEG copies at half size, for when the official server is down.
    "smallnorb48": Source(mirrors=(), files=_SMALLNORB48),
    "smallnorb48-posed": Source(mirrors=(), files={"test.npz": _SMALLNORB48["test.npz"]}, folder="smallnorb48"),
    "toys": Source(mirrors=(), files={}, note="There is nothing to download: preprocess renders the toys itself.\n"),
}
"""All sources by name: the values of `datasets.<name>.source` in params.yaml, and affNIST for the evaluation."""


def fetch(name: str, folder: Path, partial: Path, mirror: str | None = None) -> list[Path]:
    """Download every file of a source to `folder`, and return the paths. Files with the right hash are kept.

    For a source without files, its note is written, so that other stages can depend on the folder.

    Args:
        name: a key of `SOURCES`.
        folder: for complete files; a file appears there only after its hash is checked.
        partial: for unfinished files, which a later call continues.
        mirror: a folder or URL with `<name>/<file>` (or `<folder>/<file>` if the source has a `folder`), tried first.

    Raises:
        DownloadError: no mirror has a file with the right content, or `mirror` is a URL of an unknown kind.
        FileWriteError: a file could not be written, for example because the disk is full.
    """
    if mirror and (scheme := _scheme(mirror)) not in (*_REMOTE, "file", ""):
        raise DownloadError(
            f"{mirror}: files cannot be read by {scheme}. Use a folder, or a URL with https, http or file."
        )
    source = SOURCES[name]
    if not source.files:
        write_text(folder / NOTE, source.note)
        return [folder / NOTE]
    places = [*([_join(mirror, f"{source.folder or name}/")] if mirror else []), *source.mirrors]
    return [_fetch_file(name, file, source, places, folder, partial) for file in source.files]


def _fetch_file(name: str, file: str, source: Source, places: list[str], folder: Path, partial: Path) -> Path:
    expected = source.files[file]
    target = folder / file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.mkdir(parents=True, exist_ok=True)
        if target.exists():
            if not target.is_file():  # a pipe would never end
                raise FileWriteError(f"cannot write {target}: {_kind(target)} is there: remove it first")
            if pooch.file_hash(str(target)) == expected.sha256:
                return target
            _log.warning("%s is damaged: downloading it again", target)
            target.unlink()
        # The hash in the name prevents continuing a file of another source or of an older registry.
        download = _Download(partial / f"{file}.{expected.sha256[:12]}.partial", expected.size)
        failures = []
        for place in places:
            try:
                _retrieve(_join(place, file), expected.sha256, target, download)
                return target
            except _FailedError as failure:
                failures.append(failure)
                _log.warning("%s", failure)
    except OSError as error:
        where = error.filename or target
        raise FileWriteError(
            f"cannot write {where}: {error.strerror or error}. Earlier files are untouched."
        ) from error

    nowhere = [] if source.mirrors else ["no public mirror serves it"]
    lines = "\n".join(f"  {reason}" for reason in [*failures, *nowhere])
    own = f"{source.folder or name}/{file}"
    reached = {failure.reached for failure in failures}
    offline = "No server could be reached: is there a network? " if False in reached and True not in reached else ""
    kept = "The part received so far is kept, and continued next time. " if download.partial.exists() else ""
    raise DownloadError(
        f"cannot get {file} of {name} (SHA-256 {expected.sha256}):\n{lines}\n{offline}{kept}"
        f"To use your own copy, set {MIRROR_VARIABLE} to a folder or URL that holds {own}."
    )


class _FailedError(Exception):
    """One mirror failed. `reached`: whether a server answered (None for folders); `cut`: some bytes were received."""

    def __init__(self, message: str, reached: bool | None = True, cut: bool = False) -> None:
        super().__init__(message)
        self.reached, self.cut = reached, cut


def _retrieve(url: str, expected: str, target: Path, download: _Download) -> None:
    """Download one file from one mirror: continue after broken connections; start again if the continued file is wrong.

    Raises:
        _FailedError: the mirror does not serve the file, or serves other content.
    """
    for attempt in range(ATTEMPTS):
        try:
            pooch.retrieve(url, expected, fname=target.name, path=target.parent, downloader=download)
            return
        except _FailedError as failure:
            if not failure.cut or attempt == ATTEMPTS - 1:
                raise
            _log.warning("%s; continuing", failure)
            time.sleep(PAUSE)
        except ValueError:  # from pooch: wrong hash; it has deleted the download
            # The error may be in the part from an earlier attempt or another mirror: try once from the start.
            if not download.continued or attempt == ATTEMPTS - 1:
                raise _FailedError(
                    f"{url}: wrong content, expected SHA-256 {expected}, found {download.found}"
                ) from None


class _Download:
    """A downloader for pooch that continues the unfinished file `partial`, if there is one.

    Args:
        size: bytes of the file, at most; a mirror that has more is given up.

    Attributes:
        continued: whether the last call continued it.
        found: SHA-256 of the last download.
    """

    def __init__(self, partial: Path, size: int) -> None:
        self.partial, self._most = partial, size
        self.continued = False
        self.found = ""

    def __call__(self, url: str, output_file: str, _: Any) -> None:
        """Download `url`, or copy a local path, to `output_file`. Raises `_FailedError`, or OSError from the disk."""
        self.continued = False
        if _scheme(url) in _REMOTE:
            self._request(url)
            self.found = pooch.file_hash(str(self.partial))
            shutil.move(self.partial, output_file)
        else:
            self._copy(_local(url), Path(output_file))
            self.found = pooch.file_hash(output_file)

    def _copy(self, path: Path, output_file: Path) -> None:
        try:
            if not path.is_file() and path.exists():  # reading a pipe or a device may never end
                raise _FailedError(f"{path}: {_kind(path)}, not a file", reached=None)
            if (size := path.stat().st_size) > self._most:
                raise _FailedError(f"{path}: {size} bytes, more than the file's {self._most}", reached=None)
            file = path.open("rb")
        except OSError as error:
            raise _FailedError(f"{path}: {error.strerror}", reached=None) from None
        with file, output_file.open("wb") as output:
            shutil.copyfileobj(file, output)

    def _request(self, url: str) -> None:
        if self._size() > self._most:  # of an older registry, or not from here
            self.partial.unlink()
        start = self._size()
        before = start
        # Some servers label .gz files as compressed in transit; unpacked, they would have another hash.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        begun = time.monotonic()
        try:
            with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
                if start and _cannot_continue(response, start):
                    self.partial.unlink()
                    self._request(url)
                    return
                response.raise_for_status()
                self.continued = response.status_code == requests.codes.partial_content
                start = before = start if self.continued else 0  # without ranges a server sends the whole file again
                length = response.headers.get("Content-Length", "")
                whole = start + int(length) if length.isdecimal() else None
                if whole is not None and whole > self._most:
                    self.partial.unlink(missing_ok=True)
                    raise _FailedError(f"{url}: announces {whole} bytes, more than the file's {self._most}")
                deadline = begun + PATIENCE + ((whole or self._most) - start) / SLOWEST
                self._receive(response, url, whole, start, deadline)
        except (requests.RequestException, HTTPError) as error:
            reached = not isinstance(error, requests.ConnectionError | requests.Timeout)
            raise _FailedError(f"{url}: {_plain(error)}", reached, cut=self._size() > before) from None
        if whole is not None and self._size() < whole:
            raise _FailedError(f"{url}: broke off after {self._size()} of {whole} bytes", cut=self._size() > before)

    def _receive(self, response: requests.Response, url: str, whole: int | None, start: int, deadline: float) -> None:
        """Append the body of an answer to the unfinished file, or write it anew, up to the allowed size and time."""
        received = start
        with (
            self.partial.open("ab" if self.continued else "wb") as file,
            tqdm(total=whole, initial=start, desc=Path(url).name, unit="B", unit_scale=True, disable=None) as bar,
        ):
            # `read1` returns what has arrived; `read` would wait for the whole chunk, however slowly it comes.
            while chunk := response.raw.read1(_CHUNK, decode_content=False):
                received += len(chunk)
                if received > self._most:
                    break
                file.write(chunk)
                bar.update(len(chunk))
                if time.monotonic() > deadline and received != whole:
                    slow = f"slower than {SLOWEST / 1000:g} kB/s"
                    raise _FailedError(f"{url}: {received - start} bytes so far, {slow}: given up")
        if received > self._most:
            self.partial.unlink()  # not the beginning of the right file
            raise _FailedError(f"{url}: sends more than the file's {self._most} bytes: cut off")

    def _size(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0


def _cannot_continue(response: requests.Response, start: int) -> bool:
    """Whether the server refuses to start at byte `start` (the file is not longer), or starts elsewhere."""
    if response.status_code == requests.codes.partial_content:
        return not response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    return response.status_code == requests.codes.requested_range_not_satisfiable


def _plain(error: Exception) -> str:
    """A short message for a network error; the libraries' messages contain names of their objects."""
    match error:
        case requests.HTTPError() if error.response is not None:
            return f"the server answers {error.response.status_code} {error.response.reason}"
        case requests.Timeout():
            return f"no answer within {TIMEOUT[0]:.0f} to {TIMEOUT[1]:.0f} seconds"
        case requests.ConnectionError():
            # "HTTPConnection(host=..., port=...): Failed to ...", inside the exception's first argument.
            reason = str(getattr(error.args[0], "reason", "")) if error.args else ""
            return f"cannot connect ({reason.partition(': ')[2] or type(error).__name__})"
        case requests.RequestException():
            return f"{type(error).__name__}: {error}"
    return "the connection broke"


def _scheme(place: str) -> str:
    """The scheme of a URL in lower case; empty for a folder."""
    found = re.match(r"([a-z][a-z0-9+.-]*)://", place, re.IGNORECASE)
    return found[1].lower() if found else ""


def _local(place: str) -> Path:
    return Path(unquote(urlparse(place).path)) if _scheme(place) == "file" else Path(place).expanduser()


def _kind(path: Path) -> str:
    """What is at a path that is not a file, for messages."""
    return _OTHERS.get(stat.S_IFMT(path.stat().st_mode), "a device")


def _join(place: str, name: str) -> str:
    return f"{place.rstrip('/')}/{name}"
