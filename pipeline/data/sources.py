"""Downloads raw data. Each file of a source has a known SHA-256. The first mirror whose copy has this hash is used."""

import logging
import shutil
import time
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pooch
import requests
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from pipeline.errors import UserError
from pipeline.files import write_text

MIRROR_VARIABLE = "CAPSULES_MIRROR"
"""Environment variable with the user's own mirror. The stage `download` passes its value to `fetch`."""

TIMEOUT = (10.0, 30.0)  # seconds to wait for a connection, and for the next bytes
ATTEMPTS = 4  # attempts per file and mirror, if the connection breaks during a download
PAUSE = 1.0  # seconds before the next attempt

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """The files of one source, and where they can be found.

    Attributes:
        mirrors: URLs (or folders) to which a file's name is appended, tried in this order. Empty if there are no files
            (toys), or if only the user's own mirror can have the files.
        files: the SHA-256 of each file, in hexadecimal, by name.
        folder: folder with the files on the user's own mirror; an empty string means the source's name.
    """

    mirrors: tuple[str, ...]
    files: dict[str, str]
    folder: str = ""


NORB_TRAINING = "smallnorb-5x46789x9x18x6x2x96x96-training"
NORB_TESTING = "smallnorb-5x01235x9x18x6x2x96x96-testing"
"""Prefixes of smallNORB's file names. They list 5 categories, the instances 4, 6, 7, 8 and 9 (or 0, 1, 2, 3 and 5), 9
elevations, 18 azimuths, 6 lightings, 2 cameras, and 96 x 96 pixels.
"""

_SMALLNORB48 = {
    "train.npz": "b88f9fd1e4e60d5d24771e6474f3cb4a991dc179a98a16ae362d04d53f2cde9d",
    "test.npz": "6a6a6563c2337587493d06a098e45079b313af83999d18db4052ef2f7ad67ea4",
}

SOURCES = {
    "digits": Source(
        mirrors=(str(distribution("scikit-learn").locate_file("sklearn/datasets/data")),),
        files={"digits.csv.gz": "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"},
    ),
    "mnist": Source(
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        files={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion-mnist": Source(
        mirrors=(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            # This mirror is tried last, because it is not encrypted. The hash shows if a file was changed on the way.
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        files={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
    "affnist": Source(
        mirrors=("https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/",),
        files={"test_batches.zip": "83f829c01c021fa731e062e7671b0075a3e8de0a511fb6b5d403458528d0e0d1"},
    ),
    "cifar10": Source(
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        files={"cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
    ),
    "smallnorb": Source(
        mirrors=("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",),
        files={
            f"{NORB_TRAINING}-dat.mat.gz": "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
            f"{NORB_TRAINING}-cat.mat.gz": "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
            f"{NORB_TRAINING}-info.mat.gz": "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
            f"{NORB_TESTING}-dat.mat.gz": "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
            f"{NORB_TESTING}-cat.mat.gz": "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
            f"{NORB_TESTING}-info.mat.gz": "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
        },
    ),
    # smallNORB at half size, decoded from JPEG copies, for use when the official server is down. No public mirror has
    # it. `smallnorb48-posed` has only the test part, because the viewpoints of the training part are unknown.
    "smallnorb48": Source(mirrors=(), files=_SMALLNORB48),
    "smallnorb48-posed": Source(mirrors=(), files={"test.npz": _SMALLNORB48["test.npz"]}, folder="smallnorb48"),
    "toys": Source(mirrors=(), files={}),
}
"""Sources by name, as in `datasets.<name>.source` of params.yaml. affNIST is for evaluation only."""


def fetch(name: str, folder: Path, mirror: str | None = None) -> list[Path]:
    """Download a source's files to `folder`, unless they are there with the right hash. Returns the files' paths.

    `mirror`, a folder or URL, is tried first. Its files are `<Source.folder>/<file>`, or `<name>/<file>` if the source
    has an empty `folder`. Toys have no files, so only a README is written. Raises `UserError` if no mirror has a file
    with the right hash, if `mirror` is a URL with an unknown scheme, or if a file cannot be written.
    """
    try:
        known = not mirror or urlparse(mirror).scheme in ("http", "https", "file", "")
    except ValueError:  # such as an incomplete IPv6 address
        known = False
    if not known:
        raise UserError(f"{mirror}: cannot be read: use a folder, or a URL with https, http or file")
    source = SOURCES[name]
    if not source.files:  # other stages need the folder, so a file is written
        write_text(folder / "README.txt", "There is nothing to download: preprocess renders the toys itself.\n")
        return [folder / "README.txt"]
    places = [*([f"{mirror.rstrip('/')}/{source.folder or name}"] if mirror else []), *source.mirrors]
    return [_fetch_file(name, file, places, folder / file) for file in source.files]


def _fetch_file(name: str, file: str, places: list[str], target: Path) -> Path:
    """Get a file with the right hash from `places` (folders, URLs), unless `target` has it. Returns `target`."""
    source, sha256 = SOURCES[name], SOURCES[name].files[file]
    reasons = [] if source.mirrors else ["no public mirror serves it; docs/data.md says what to train on instead"]
    try:
        if target.is_file() and pooch.file_hash(target) == sha256:
            return target
        for place in places:
            url = f"{place.rstrip('/')}/{file}"
            try:
                pooch.retrieve(url, sha256, fname=target.name, path=target.parent, downloader=_download)
                return target
            except UserError as error:
                reasons.append(str(error))
            except ValueError as error:  # pooch found a wrong hash, and has deleted the file
                reasons.append(f"{url}: wrong content: {error}")
            _log.warning("%s", reasons[-1])
    except OSError as error:
        where = error.filename2 or error.filename or target
        reason = error.strerror or error
        raise UserError(f"cannot read or write {where}: {reason}. Files that were there are kept.") from error
    shown = "".join(f"\n  {reason}" for reason in reasons)
    raise UserError(
        f"cannot get {file} of {name} (SHA-256 {sha256}):{shown}\n"
        f"To use your own copy, set {MIRROR_VARIABLE} to a folder or URL that holds {source.folder or name}/{file}."
    )


def local_path(place: str) -> Path | None:
    """The local path of `place`, which is a path or a URL. None if it is a URL of a server (http or https)."""
    parsed = urlparse(place)
    if parsed.scheme in ("http", "https"):
        return None
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else Path(place).expanduser()


def _download(url: str, output: str, _: object) -> None:
    """Copy or download `url` to `output` (called by pooch). If the connection breaks, the download starts again. Raises
    `UserError` if the file does not exist, the server cannot be reached or refuses, or `ATTEMPTS` connections break.
    """
    if path := local_path(url):
        if not path.is_file():
            raise UserError(f"{path}: there is no such file")
        shutil.copyfile(path, output)
        return
    # Responses are stored as they are sent. Some servers declare .gz files to be compressed for the transfer only. If
    # they were decompressed, their hash would differ.
    options: dict[str, Any] = {"headers": {"Accept-Encoding": "identity"}, "stream": True, "timeout": TIMEOUT}
    for _attempt in range(ATTEMPTS):
        try:
            with requests.get(url, **options) as response:
                response.raise_for_status()
                total = int(response.headers.get("Content-Length") or 0) or None
                bar = tqdm.wrapattr(response.raw, "read", total=total, desc=Path(url).name, disable=None)
                with Path(output).open("wb") as file, bar as body:
                    shutil.copyfileobj(body, file)
            return
        except requests.HTTPError as error:
            raise UserError(str(error)) from None
        except requests.RequestException as error:  # its message has memory addresses, so it is not shown
            raise UserError(f"{url}: cannot connect ({type(error).__name__}): is there a network?") from None
        except HTTPError:  # the connection broke
            time.sleep(PAUSE)
    raise UserError(f"{url}: the connection broke")
