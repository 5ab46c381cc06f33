"""Images of the user's own: PNG and JPEG files in class folders, or arrays in an npz file.

Everything is looked at before anything is decoded: names and kinds of files (`find`), then the sizes in their headers
(`plan`). Only then are images decoded, turned upright, converted, and resized (`read`).
"""

from __future__ import annotations

import os
import stat
import unicodedata
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image, ImageOps
from tqdm import tqdm

from pipeline.data.datasets import Dataset
from pipeline.data.settings import OwnImagesParams
from pipeline.errors import UserError
from pipeline.memory import COPIES, available_bytes, check_fits, readable

SUFFIXES = (".png", ".jpg", ".jpeg")
LARGEST = 50_000_000
"""Most pixels of one image. A file of kilobytes can hold billions."""
SMALLEST = 4
"""Least pixels a side of an image in an array; so its axes cannot be mistaken for channels."""

_FORMATS = ("PNG", "JPEG")
_GREY, _COLOUR = ("1", "L", "LA", "I;16", "I;16B"), ("P", "PA", "RGB", "RGBA")
_RESAMPLING = Image.Resampling.BICUBIC
_NOT_IMAGES = ("thumbs.db", "desktop.ini")
"""Files that file managers leave behind, as they do hidden ones."""


class OwnImagesError(UserError):
    """The user's images cannot be used as they are. The message names the file or folder."""


class PlaceError(OwnImagesError):
    """There is nothing at the path in params.yaml, or something else than it says."""

    exit_code = 2


@dataclass(frozen=True)
class Plan:
    """What there is to read, known from names and headers alone.

    Attributes:
        files: image files by part ("train" and "test", or "" where there are no parts) and class; empty for an npz.
        counts: images of the training part, or of the whole, and of the test part.
        decoded: bytes of all images as they are.
        largest: bytes of what is decoded at a time.
        notes: what happens to the images, one sentence each.
    """

    name: str
    params: OwnImagesParams
    place: Path
    files: dict[str, list[list[Path]]]
    counts: tuple[int, int]
    decoded: int
    largest: int
    notes: tuple[str, ...]

    @property
    def kept(self) -> int:
        """Bytes of all images once resized."""
        return sum(self.counts) * self.params.channels * self.params.side**2

    @property
    def summary(self) -> str:
        """How many images there are, and how much memory they take."""
        total, test = sum(self.counts), self.counts[1]
        parts = f" ({self.counts[0]:,} in train, {test:,} in test)" if test else ""
        side = self.params.side
        return (
            f"{self.name}: {total:,} images of {len(self.params.classes)} classes{parts}, {readable(self.decoded)} of "
            f"pixels to decode. As {self.params.channels}x{side}x{side} they take {readable(self.kept)}, and about "
            f"{readable(COPIES * self.kept)} in a training; {readable(available_bytes())} of memory are free."
        )


def find(params: OwnImagesParams, where: str, root: Path) -> tuple[Path, dict[str, list[list[Path]]]]:
    """The path of own images, and their files by part and class (none for an npz), from names and kinds alone.

    Links are refused, because DVC does not see what changes behind them; so are pipes and devices, at which it waits
    for ever, and names that it cannot write down.

    Args:
        where: the entry's place in params.yaml, for messages.
        root: what a relative path is relative to.

    Raises:
        PlaceError: there is nothing at the path, or it is a file where a folder is asked for, or the reverse.
        OwnImagesError: a folder has other classes than named, a class has no image, or something is no image.
    """
    place = root / params.path
    wanted = "folder" if params.format == "folder" else "file"
    try:
        kind = place.stat()
    except OSError as error:
        raise PlaceError(f"{where}.path: {place}: {error.strerror or error}") from None
    if not (stat.S_ISDIR if wanted == "folder" else stat.S_ISREG)(kind.st_mode):
        raise PlaceError(f"{where}.path: {place} is not a {wanted}, as format: {params.format} needs")
    if params.format == "npz":
        return place, {}
    if not params.test_part:
        return place, {"": _class_folders(place, params)}
    there = {entry.name for entry in _entries(place) if entry.is_dir()}
    if there != {"train", "test"}:
        shown = ", ".join(sorted(there)) or "none"
        raise OwnImagesError(
            f"{place} must have the folders train and test, and no others, where test_part is true (found: {shown})"
        )
    return place, {part: _class_folders(place / part, params) for part in ("train", "test")}


def check_places(own_images: Mapping[str, OwnImagesParams], root: Path, outs: Sequence[str]) -> None:
    """Check, before DVC looks at them, that own images can be found and lie apart from what stages write.

    Args:
        outs: paths that stages write, relative to `root`.

    Raises:
        OwnImagesError: as `find`; `PlaceError` also for a folder that stages write to.
    """
    written = [(root / out).resolve() for out in outs]
    for name, params in own_images.items():
        place = (root / params.path).resolve()
        for out in written:
            if place == out or place in out.parents or out in place.parents:
                raise PlaceError(f"own_images.{name}.path: {place} is, holds or lies in {out}, which a stage writes")
        find(params, f"own_images.{name}", root)


def plan(name: str, params: OwnImagesParams, root: Path) -> Plan:
    """Look at all files and their headers; nothing is decoded.

    Args:
        name: key of `own_images` in params.yaml.
        root: what a relative path is relative to.

    Raises:
        OwnImagesError: as `find`, and for a file that is no image, too large, or of a kind that is not read.
        OutOfMemoryError: the images do not fit into memory.
    """
    place, files = find(params, f"own_images.{name}", root)
    found = _plan_of_files(name, params, place, files) if files else _plan_of_arrays(name, params, place)
    advice = f"Reduce own_images.{name}.side or the number of images."
    check_fits(2 * found.kept + found.largest, f"own_images.{name}: {sum(found.counts):,} images", advice)
    return found


def read(plan: Plan) -> Dataset:
    """All images of a plan, decoded and resized, in the order of classes and names; its split has test images only
    where these are apart.

    Raises:
        OwnImagesError: an image is damaged; it is named.
    """
    params = plan.params
    images = np.empty((sum(plan.counts), params.channels, params.side, params.side), np.uint8)
    if plan.files:
        flat = [(label, file) for part in plan.files.values() for label, files in enumerate(part) for file in files]
        for place, (_, file) in enumerate(tqdm(flat, desc=plan.name, unit="images", disable=None)):
            images[place] = _decoded(file, params)
        labels = np.array([label for label, _ in flat], np.int64)
    else:
        labels = _read_arrays(plan, images)
    pool, total = plan.counts[0], sum(plan.counts)
    split = {"train": np.arange(pool), "validation": np.empty(0, np.int64), "test": np.arange(pool, total)}
    return Dataset(plan.name, f"{plan.name} (own images)", images, labels, {}, split, tuple(params.classes))


def repeated(images: NDArray[np.uint8]) -> int:
    """How many of the images `[N, ...]` are equal to an earlier one. Such may be in training and in test."""
    return sum(count - 1 for count in Counter(hash(image.tobytes()) for image in images).values())


# ---- files in folders


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Files and folders by name, hidden ones left out. OwnImagesError for links, other kinds, and unreadable ones."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise OwnImagesError(f"{folder} cannot be read: {error.strerror or error}") from None
    for entry in found:
        path = os.fsencode(entry.path)
        try:
            shown = path.decode()
        except UnicodeDecodeError:
            raise OwnImagesError(
                f"{path.decode(errors='backslashreplace')}: the name is not UTF-8: rename the file, or remove it"
            ) from None
        if entry.is_symlink():
            raise OwnImagesError(f"{shown!r} is a link, behind which DVC would not see changes: copy the file instead")
        if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
            raise OwnImagesError(f"{shown!r} is neither a file nor a folder (a pipe, a socket or a device): remove it")
    return [entry for entry in found if not entry.name.startswith(".") and entry.name.lower() not in _NOT_IMAGES]


def _class_folders(folder: Path, params: OwnImagesParams) -> list[list[Path]]:
    """The image files of each class. At the top, files that are no images are left alone."""
    entries = _entries(folder)
    loose = [entry.name for entry in entries if entry.is_file() and entry.name.lower().endswith(SUFFIXES)]
    if loose:
        raise OwnImagesError(f"{folder} holds {loose[0]!r}: an image must be in the folder of its class")
    # macOS writes accents as separate characters.
    there = {unicodedata.normalize("NFC", entry.name): Path(entry.path) for entry in entries if entry.is_dir()}
    wanted = [unicodedata.normalize("NFC", name) for name in params.classes]
    if set(wanted) != set(there):
        missing, more = sorted(set(wanted) - set(there)), sorted(set(there) - set(wanted))
        reasons = [
            *([f"has no folder for {_shown(missing)} of `classes`"] if missing else []),
            *([f"has folders that are not among `classes`: {_shown(more)}"] if more else []),
        ]
        raise OwnImagesError(f"{folder} {' and '.join(reasons)}")
    return [_image_files(there[name]) for name in wanted]


def _shown(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def _image_files(folder: Path) -> list[Path]:
    entries = _entries(folder)
    others = [entry.name for entry in entries if entry.is_dir() or not entry.name.lower().endswith(SUFFIXES)]
    if others:
        raise OwnImagesError(
            f"{folder} must hold PNG and JPEG files only ({', '.join(SUFFIXES)}): move or convert {_shown(others)}"
        )
    if not entries:
        raise OwnImagesError(f"{folder} holds no images: fill it, or remove it and its entry in `classes`")
    return [Path(entry.path) for entry in entries]


def _plan_of_files(name: str, params: OwnImagesParams, place: Path, files: dict[str, list[list[Path]]]) -> Plan:
    sizes: Counter[tuple[int, int]] = Counter()
    modes: Counter[str] = Counter()
    every = [file for part in files.values() for of_class in part for file in of_class]
    decoded = largest = clear = 0
    for file in every:
        with _opened(file) as image:
            width, height = image.size
            # An animation would be read as its first image. JPEG files of phones hold a preview, too.
            if image.format == "PNG" and getattr(image, "n_frames", 1) > 1:
                raise OwnImagesError(f"{file} is animated: save it as one image")
            if image.mode not in _GREY + _COLOUR:
                raise OwnImagesError(f"{file} has colours of the kind {image.mode}: save it as RGB or grey")
            bands = 2 if image.mode.startswith("I;16") else len(image.getbands())
            clear += _is_transparent(image)
        sizes[width, height] += 1
        modes["grey" if image.mode in _GREY else "colour"] += 1
        decoded += width * height * bands
        largest = max(largest, width * height * 12)  # the image itself, turned, and as RGBA
    test = sum(map(len, files["test"])) if "test" in files else 0
    notes = [*_resizing(sizes, params), *_conversion(modes, params)]
    if clear:
        notes.append(f"{clear:,} images are transparent in places: these become black")
    return Plan(name, params, place, files, (len(every) - test, test), decoded, largest, tuple(notes))


def _resizing(sizes: Counter[tuple[int, int]], params: OwnImagesParams) -> Iterator[str]:
    """What is done to images `(width, height)` of these sizes."""
    side = params.side
    if set(sizes) != {(side, side)}:
        small, large = (pick(sizes, key=lambda size: (size[0] * size[1], size)) for pick in (min, max))
        span = f"{small[0]}x{small[1]}" + (f" to {large[0]}x{large[1]}" if large != small else "")
        count = f"{len(sizes):,} sizes" if len(sizes) > 1 else "one size"
        yield f"images have {count}, {span} pixels: they are resized to {side}x{side} (fit: {params.fit})"


def _conversion(modes: Counter[str], params: OwnImagesParams) -> Iterator[str]:
    if params.channels == 1 and modes["colour"]:
        yield f"{modes['colour']:,} images in colour become grey (channels: 1)"
    if params.channels == 3 and modes["grey"]:
        yield f"{modes['grey']:,} grey images get three equal channels (channels: 3)"


def _opened(file: Path) -> Image.Image:
    """An image of which only the header is read. OwnImagesError if it is none, or has more pixels than `LARGEST`."""
    too_large = f"{file} has more than {LARGEST:,} pixels: make it smaller"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images, and of odd metadata
            image = Image.open(file, formats=_FORMATS)
    except Image.DecompressionBombError:
        raise OwnImagesError(too_large) from None
    except (OSError, SyntaxError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a PNG or JPEG image"
        raise OwnImagesError(f"{file} cannot be read: {reason}") from None
    if image.width * image.height > LARGEST:
        image.close()
        raise OwnImagesError(too_large)
    return image


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info


def _decoded(file: Path, params: OwnImagesParams) -> NDArray[np.uint8]:
    """One image `[channels, side, side]`: upright, over black, converted, and resized."""
    with _opened(file) as image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plain = upright_on_black(image, params.channels)
        # All exceptions: decoders raise many kinds on damaged files.
        except Exception as error:
            raise OwnImagesError(f"{file} is damaged: {error or type(error).__name__}") from None
    pixels = np.asarray(_fitted(plain, params))
    return pixels[None] if params.channels == 1 else pixels.transpose(2, 0, 1)


def upright_on_black(image: Image.Image, channels: int) -> Image.Image:
    """An image as its EXIF data turns it, over black where it is transparent, in grey (1 channel) or colour (3)."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):  # Pillow would cut values off
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    if _is_transparent(upright):
        coloured = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", coloured.size, (0, 0, 0, 255)), coloured)
    return upright.convert("L" if channels == 1 else "RGB")


def _fitted(image: Image.Image, params: OwnImagesParams) -> Image.Image:
    """An image resized to a square; one that has the size keeps its pixels."""
    side = params.side
    if params.fit == "crop":
        shortest = min(image.size)
        left, top = ((length - shortest) // 2 for length in image.size)
        image = image.crop((left, top, left + shortest, top + shortest))
    if params.fit == "stretch" or image.width == image.height:
        return image.resize((side, side), _RESAMPLING)
    longest = max(image.size)
    width, height = (max(1, round(length * side / longest)) for length in image.size)
    square = Image.new(image.mode, (side, side))
    square.paste(image.resize((width, height), _RESAMPLING), ((side - width) // 2, (side - height) // 2))
    return square


# ---- arrays


_DAMAGED = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What reading a zip archive or an array raises."""


def _plan_of_arrays(name: str, params: OwnImagesParams, place: Path) -> Plan:
    parts = _parts(params)
    wanted = [array for pair in parts for array in pair]
    headers = _headers(place)
    if sorted(headers) != sorted(wanted):
        found = ", ".join(sorted(headers)) or "none"
        raise OwnImagesError(f"{place} must hold the arrays {', '.join(wanted)}, and no others (found: {found})")
    counts, sizes, decoded = [], Counter[tuple[int, int]](), 0
    modes: Counter[str] = Counter()
    for pixels, labels in parts:
        shape, dtype = headers[pixels]
        count, channels, height, width = _layout(f"{place}: {pixels}", shape, dtype)
        if channels != params.channels and 2 in (channels, params.channels):
            raise OwnImagesError(f"{place}: {pixels} has {channels} channels, params.yaml says {params.channels}")
        of_labels, kind = headers[labels]
        if of_labels != (count,) or kind.kind not in "iu":
            raise OwnImagesError(f"{place}: {labels} is {kind} {of_labels}, expected {count} whole numbers")
        counts.append(count)
        sizes[width, height] += count
        modes["grey" if channels == 1 else "colour"] += count
        decoded += count * channels * height * width
    notes = (*_resizing(sizes, params), *(_conversion(modes, params)))
    pool, test = (*counts, 0)[:2]
    return Plan(name, params, place, {}, (pool, test), decoded, decoded, notes)


def _parts(params: OwnImagesParams) -> list[tuple[str, str]]:
    return [("images", "labels"), *([("test_images", "test_labels")] if params.test_part else [])]


def _headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of each array of an npz, which are not read. OwnImagesError if it is damaged."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as file:
                    header = npy.read_array_header_1_0 if npy.read_magic(file)[0] == 1 else npy.read_array_header_2_0
                    shape, _, dtype = header(file)
                found[info.filename.removesuffix(".npy")] = (shape, dtype)
                if dtype.hasobject or info.file_size < np.prod(shape, dtype=object) * dtype.itemsize:
                    raise ValueError(f"{info.filename} does not hold the numbers that its header states")
    except _DAMAGED as error:
        raise OwnImagesError(f"{path} is damaged, or no npz file: {error}") from None
    return found


def _layout(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int, int, int]:
    """Number, channels, height and width of images `[N, H, W]`, `[N, H, W, C]` or `[N, C, H, W]`."""
    if dtype != np.uint8:
        raise OwnImagesError(f"{where} holds {dtype} numbers, expected bytes (uint8), 0 black and 255 white")
    match shape:
        case (count, height, width):
            channels = 1
        case (count, height, width, (1 | 2 | 3) as channels):
            pass
        case (count, (1 | 2 | 3) as channels, height, width):
            pass
        case _:
            raise OwnImagesError(
                f"{where} has the shape {shape}, expected [N, H, W], [N, H, W, C] or [N, C, H, W] with C from 1 to 3"
            )
    if count == 0 or min(height, width) < SMALLEST or height * width > LARGEST:
        raise OwnImagesError(
            f"{where} has {count:,} images of {width}x{height} pixels, expected one or more, each side at least "
            f"{SMALLEST}, {LARGEST:,} pixels at most"
        )
    return count, channels, height, width


def _read_arrays(plan: Plan, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Fill `images` with those of an npz, resized, and return their labels."""
    params, place, start = plan.params, plan.place, 0
    labels = []
    for (pixels, numbers), count in zip(_parts(params), plan.counts, strict=False):
        try:
            with np.load(place, allow_pickle=False) as arrays:
                given, of_part = arrays[pixels], arrays[numbers].astype(np.int64)
        except (*_DAMAGED, KeyError) as error:
            raise OwnImagesError(f"{place} is damaged: {error}") from None
        _check_labels(f"{place}: {numbers}", of_part, params)
        if given.ndim == 3:
            given = given[:, None]
        elif given.shape[-1] <= 3:
            given = given.transpose(0, 3, 1, 2)
        for index, image in enumerate(tqdm(given, desc=plan.name, unit="images", disable=None)):
            images[start + index] = _resized(image, params)
        labels.append(of_part)
        start += count
    return np.concatenate(labels)


def _check_labels(where: str, labels: NDArray[np.int64], params: OwnImagesParams) -> None:
    last = len(params.classes) - 1
    if labels.min() < 0 or labels.max() > last:
        raise OwnImagesError(f"{where} go from {labels.min()} to {labels.max()}, but `classes` names 0 to {last}")
    empty = [params.classes[label] for label in range(last + 1) if label not in labels]
    if empty:
        raise OwnImagesError(f"{where}: no image is of the class {_shown(empty)}")


def _resized(image: NDArray[np.uint8], params: OwnImagesParams) -> NDArray[np.uint8]:
    """An image `[C, H, W]` as `[channels, side, side]`."""
    if len(image) == 3:
        coloured = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
        pixels = np.asarray(_fitted(coloured.convert("L") if params.channels == 1 else coloured, params))
        return pixels[None] if params.channels == 1 else pixels.transpose(2, 0, 1)
    grey = [np.asarray(_fitted(Image.fromarray(np.ascontiguousarray(channel)), params)) for channel in image]
    return np.stack(grey * 3 if params.channels == 3 else grey)
