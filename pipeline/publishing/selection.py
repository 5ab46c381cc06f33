"""Which outputs of a profile are published: trained weights and arrays that are small, recorded and no drafts.

They go to the DVC remote `published`, the folder `published/` of the repository. Git keeps every version of it for
good, so there are limits of size. Raw data, data sets and checkpoints are never published: anyone can make them again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.files import FileReadError, read_yaml

REMOTE = "published"
"""The name of the DVC remote, and its folder in the repository."""
LARGEST_FILE = 5_000_000
"""Bytes of the largest file that is published."""
LARGEST_TOTAL = 80_000_000
"""Bytes of all published files together."""
_KINDS = ("models/", "results/")


class PublishingError(UserError):
    """Something cannot be published."""


@dataclass(frozen=True)
class Output:
    """A cached output of an executed stage.

    Attributes:
        label: the stage as results name it: `train/capsules-mnist`.
        path: relative to the repository.
        md5: as in `dvc.lock`; ends in `.dir` for a folder.
        size: bytes.
    """

    label: str
    path: str
    md5: str
    size: int


def outputs(lock: Path, kinds: tuple[str, ...] = _KINDS) -> list[Output]:
    """The outputs in `dvc.lock`, in its order; none if there is no lock.

    Args:
        kinds: folders; by default those of outputs that could be published.

    Raises:
        PublishingError: the lock cannot be read.
    """
    if not lock.exists():
        return []
    try:
        stages: dict[str, Any] = read_yaml(lock)["stages"]
        return [
            Output(stage.replace("@", "/", 1), out["path"], out["md5"], out["size"])
            for stage, entry in stages.items()
            for out in entry.get("outs", [])
            if out["path"].startswith(kinds)
        ]
    except FileReadError as error:
        raise PublishingError(f"cannot read {lock}: {error}") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise PublishingError(f"cannot read {lock}: {lock.name} is not what DVC writes: {error!r}") from None


@dataclass(frozen=True)
class Selection:
    """What is published of a profile, and what is not, with the reason.

    Attributes:
        chosen: to be published, in the order of the lock.
        left_out: the reason by path.
    """

    chosen: list[Output]
    left_out: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes of all that is chosen."""
        return sum(output.size for output in self.chosen)


def select(
    root: Path,
    found: Collection[Output],
    recorded: Collection[str],
    largest_file: int = LARGEST_FILE,
    largest_total: int = LARGEST_TOTAL,
) -> Selection:
    """Choose what is published.

    Args:
        found: the outputs of the profile.
        recorded: labels of the items whose results have the profile's settings and are no drafts.

    Raises:
        PublishingError: together they are larger than `largest_total`; the largest are named.
    """
    remote = root / REMOTE
    chosen, left_out = [], {}
    for output in found:
        sizes = _sizes(root / output.path) if (root / output.path).exists() else _published_sizes(remote, output.md5)
        if output.label not in recorded:
            left_out[output.path] = "its result is a draft or was made with other settings"
        elif sizes is None:
            left_out[output.path] = "its files were not kept"
        elif max(sizes, default=0) > largest_file:
            left_out[output.path] = f"a file of {max(sizes) / 1e6:.1f} MB, at most {largest_file / 1e6:.0f} are allowed"
        else:
            chosen.append(output)
    selection = Selection(chosen, left_out)
    if selection.size > largest_total:
        largest = sorted(chosen, key=lambda output: -output.size)[:5]
        named = ", ".join(f"{output.path} ({output.size / 1e6:.1f} MB)" for output in largest)
        raise PublishingError(
            f"{selection.size / 1e6:.0f} MB to be published, at most {largest_total / 1e6:.0f} are allowed; the "
            f"largest: {named}"
        )
    return selection


def _sizes(path: Path) -> list[int]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return [file.stat().st_size for file in files]


def _published_sizes(remote: Path, md5: str) -> list[int] | None:
    """Sizes of the files of an output in the remote; None if one of them is not there."""
    found = [path.stat().st_size if (path := stored(remote, each)).exists() else None for each in _hashes(remote, md5)]
    sizes = [size for size in found if size is not None]
    return sizes if len(sizes) == len(found) else None


def _hashes(remote: Path, md5: str) -> Iterator[str]:
    """The hashes of an output and of the files in it, as far as the remote has their list.

    Raises:
        PublishingError: the list is corrupt.
    """
    yield md5
    listing = stored(remote, md5)
    if md5.endswith(".dir") and listing.exists():
        try:
            yield from [str(entry["md5"]) for entry in json.loads(listing.read_text(encoding="utf-8"))]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise PublishingError(f"{listing} is corrupt. Get it back with `git checkout`.") from None


def stored(remote: Path, md5: str) -> Path:
    """Where a DVC remote stores the content with this hash."""
    return remote / "files" / "md5" / md5[:2] / md5[2:]


def unused(remote: Path, kept: Collection[Output]) -> list[Path]:
    """Files of the remote that belong to none of the outputs `kept`."""
    used = {stored(remote, each) for output in kept for each in _hashes(remote, output.md5)}
    return sorted(path for path in (remote / "files").rglob("*") if path.is_file() and path not in used)
