"""Reads the user's own images: PNG and JPEG files in class folders, or arrays in an npz file.

`find` checks the names and kinds of all files. `read` checks whether the images fit into memory. It then decodes each
image, turns it upright, converts it and resizes it.
"""

import os
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from tqdm import tqdm

from pipeline.data.datasets import Dataset, reading
from pipeline.data.settings import OwnImagesParams
from pipeline.errors import UserError
from pipeline.memory import COPIES, available_bytes, check_fits, readable

SUFFIXES = (".png", ".jpg", ".jpeg")
LARGEST = 50_000_000
"""Largest number of pixels of an image file. Without a limit, a small file could decode to billions of pixels."""
SMALLEST = 4
"""Smallest height and width of images in an array, in pixels. A shorter axis could be mistaken for channels."""

Part = Sequence[tuple[int, Path | NDArray[np.uint8]]]
"""Pairs (label, image) of a part (train or test). Images are arrays `[C, H, W]`, or paths sorted by class and name."""


def find(params: OwnImagesParams, where: str, root: Path) -> list[Part]:
    """Find own images without opening files. A relative `params.path` is relative to `root`. Returns the `Part`s of a
    folder, or an empty list for an npz file. `where` is the name of these settings in error messages.

    Raises `UserError` if the path does not exist or does not fit `params.format`, if the class folders are not those of
    `params.classes`, if a class has no images, if an image is outside of a class folder, or if a class folder contains
    a visible folder, or a visible file without one of the `SUFFIXES`. Also raises it if a folder is unreadable, or
    has an entry that DVC cannot handle: a link, whose target may change unseen; a pipe or a device, for which DVC would
    wait forever; or an entry whose name is not UTF-8.
    """
    place = root / params.path
    if not (place.is_dir() if params.format == "folder" else place.is_file()):
        kind = "folder" if params.format == "folder" else "file"
        wrong = f"must be a {kind} for the format {params.format!r}" if place.exists() else "is not there"
        raise UserError(f"{where}.path: {place} {wrong}")
    if params.format == "npz":
        return []
    folders = _folders(place, ["train", "test"], "test_part: true") if params.test_part else [place]
    of_classes = [_folders(folder, params.classes, "classes") for folder in folders]
    return [[(label, file) for label, one in enumerate(each) for file in _image_files(one)] for each in of_classes]


def check_places(own_images: Mapping[str, OwnImagesParams], root: Path, outs: Sequence[str]) -> None:
    """Raise `UserError` if `find` does, or if a path of own images contains or lies in a stage's output (`outs`)."""
    for name, params in own_images.items():
        place = (root / params.path).resolve()
        for out in ((root / out).resolve() for out in outs):
            if place.is_relative_to(out) or out.is_relative_to(place):
                raise UserError(f"own_images.{name}.path: {place} holds or lies in {out}, which a stage writes")
        find(params, f"own_images.{name}", root)


def read(name: str, params: OwnImagesParams, root: Path) -> Dataset:
    """Read and resize the images of the entry `name` of `own_images`. In the data set, training images come first.

    The split has no validation images. It has test images only if `params.test_part` is true. A relative `params.path`
    is relative to `root`. The number of images is printed before they are decoded. Afterwards, the number of duplicates
    is printed if there are any. Raises `UserError` if `find` does, if a file is damaged, too large, animated or in an
    unsupported colour mode, if arrays do not fit `params`, or if there is too little memory.
    """
    where, advice = f"own_images.{name}", f"Reduce own_images.{name}.side or the number of images."
    parts = find(params, where, root)
    if params.format == "npz":
        parts = _arrays(root / params.path, params, where)
    labelled = [each for part in parts for each in part]
    train, count, side = len(parts[0]), len(labelled), params.side
    size = count * params.channels * side**2
    check_fits(2 * size, f"{where}: {count:,} images", advice)
    apart = f" ({train:,} in train, {count - train:,} in test)" if params.test_part else ""
    print(
        f"{name}: {count:,} images of {len(params.classes)} classes{apart}. As {params.channels}x{side}x{side} they "
        f"take {readable(size)}, and about {readable(COPIES * size)} in a training; {readable(available_bytes())} of "
        "memory are free.",
        flush=True,
    )
    images = np.empty((count, params.channels, side, side), np.uint8)
    for index, (_, image) in enumerate(tqdm(labelled, desc=name, unit="images", disable=None)):
        images[index] = _resized(image, params)
    if again := count - len({hash(image.tobytes()) for image in images}):
        print(f"  repeats of earlier images: {again:,}; training and test images may overlap")
    labels = np.array([label for label, _ in labelled], np.int64)
    split = {"train": np.arange(train), "validation": np.empty(0, np.int64), "test": np.arange(train, count)}
    return Dataset(name, f"{name} (own images)", images, labels, {}, split, tuple(params.classes))


def _entries(folder: Path) -> list[Path]:
    """Visible files and folders, sorted. UserError for a link, pipe, device, unreadable folder or name not in UTF-8."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
    for path in paths:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        if shown != str(path):
            raise UserError(f"{shown}: the name is not UTF-8: rename the file, or remove it")
        if path.is_symlink():
            raise UserError(f"{shown!r} is a link, behind which DVC would not see changes: copy the file instead")
        if not (path.is_file() or path.is_dir()):
            raise UserError(f"{shown!r} is neither a file nor a folder (a pipe, a socket or a device): remove it")
    left_behind = ("thumbs.db", "desktop.ini")  # hidden files that Windows adds to folders
    return [path for path in paths if not path.name.startswith(".") and path.name.lower() not in left_behind]


def _folders(folder: Path, names: list[str], field: str) -> list[Path]:
    """The folders `names` in `folder`. UserError if one is missing, or if there are other folders or loose images."""
    entries = _entries(folder)
    if loose := [path.name for path in entries if path.is_file() and path.suffix.lower() in SUFFIXES]:
        raise UserError(f"{folder} holds {loose[0]!r}: an image must be in the folder of its class")
    # macOS may write accents as separate characters, so names are compared in one normal form.
    there = {unicodedata.normalize("NFC", path.name): path for path in entries if path.is_dir()}
    wanted = [unicodedata.normalize("NFC", name) for name in names]
    if missing := sorted(set(wanted) - set(there)):
        raise UserError(f"{folder} has no folder {_shown(missing)}, which `{field}` asks for")
    if more := sorted(set(there) - set(wanted)):
        raise UserError(f"{folder} has folders that `{field}` does not name: {_shown(more)}")
    return [there[name] for name in wanted]


def _shown(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + rest


def _image_files(folder: Path) -> list[Path]:
    paths = _entries(folder)
    if others := [path.name for path in paths if path.is_dir() or path.suffix.lower() not in SUFFIXES]:
        raise UserError(f"{folder} must hold {', '.join(SUFFIXES)} files only: move or convert {_shown(others)}")
    if not paths:
        raise UserError(f"{folder} holds no images: fill it, or remove it and its entry in `classes`")
    return paths


def _decoded(file: Path, channels: int) -> Image.Image:
    """Decode a file and call `upright_on_black`. UserError if it is damaged, too large, animated or of a wrong mode."""
    with reading(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large images, and of odd metadata
        with Image.open(file, formats=("PNG", "JPEG")) as image:
            if image.width * image.height > LARGEST:
                raise UserError(f"{file} has more than {LARGEST:,} pixels: make it smaller")
            # Only a file's first image is read. A second one in a JPEG file, such as a phone's preview, is no error.
            if image.format == "PNG" and getattr(image, "n_frames", 1) > 1:
                raise UserError(f"{file} is animated: save it as one image")
            if image.mode not in ("1", "L", "LA", "I;16", "I;16B", "P", "PA", "RGB", "RGBA"):
                raise UserError(f"{file} has colours of the kind {image.mode}: save it as RGB or grey")
            # Three copies of 4 bytes per pixel: the image as decoded, turned upright, and converted to RGBA.
            check_fits(12 * image.width * image.height, str(file), "Make it smaller.")
            return upright_on_black(image, channels)


def upright_on_black(image: Image.Image, channels: int) -> Image.Image:
    """An image turned upright by its EXIF data, with black behind transparent pixels, in grey (1 channel) or colour."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):  # Pillow's `convert` would clip 16-bit values at 255
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    if upright.mode in ("LA", "PA", "RGBA") or "transparency" in upright.info:
        coloured = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", coloured.size, (0, 0, 0, 255)), coloured)
    return upright.convert("L" if channels == 1 else "RGB")


def _resized(image: Path | NDArray[np.uint8], params: OwnImagesParams) -> NDArray[np.uint8]:
    """An image, resized to `[channels, side, side]`. A file is decoded first."""
    if isinstance(image, Path):
        pictures = [_decoded(image, params.channels)]
    else:
        bands = [image.transpose(1, 2, 0)] if len(image) == 3 else image
        mode = "RGB" if params.channels == 3 else "L"
        pictures = [Image.fromarray(np.ascontiguousarray(band)).convert(mode) for band in bands]
    squares = [np.asarray(_fitted(each, params)) for each in pictures]
    return squares[0].transpose(2, 0, 1) if params.channels == 3 else np.stack(squares)


def _fitted(image: Image.Image, params: OwnImagesParams) -> Image.Image:
    """Resize an image to sides of `params.side` pixels, as `params.fit` says. An image of this size is unchanged."""
    side, bicubic = params.side, Image.Resampling.BICUBIC
    if params.fit == "crop":
        shortest = min(image.size)
        left, top = ((length - shortest) // 2 for length in image.size)
        image = image.crop((left, top, left + shortest, top + shortest))
    if params.fit == "stretch" or image.width == image.height:
        return image.resize((side, side), bicubic)
    longest = max(image.size)
    width, height = (max(1, round(length * side / longest)) for length in image.size)
    square = Image.new(image.mode, (side, side))
    square.paste(image.resize((width, height), bicubic), ((side - width) // 2, (side - height) // 2))
    return square


def _arrays(place: Path, params: OwnImagesParams, where: str) -> list[Part]:
    """Read the `Part`s of an npz file. If they do not fit into memory, the error message begins with `where`."""
    names = [("images", "labels"), ("test_images", "test_labels")][: 1 + params.test_part]
    wanted = [name for pair in names for name in pair]
    with reading(place), place.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        if sorted(stored.files) != sorted(wanted):
            there = ", ".join(sorted(stored.files)) or "none"
            raise UserError(f"{place} must hold the arrays {', '.join(wanted)}, and no others (found: {there})")
        check_fits(sum(info.file_size for info in stored.zip.infolist()), where, "Store fewer or smaller images.")
        arrays = {name: np.asarray(stored[name]) for name in wanted}
    parts: list[Part] = []
    for pixels, numbers in names:
        images, labels = _channels_first(f"{place}: {pixels}", arrays[pixels]), arrays[numbers]
        where = f"{place}: {numbers}"
        count, channels, last = len(images), images.shape[1], len(params.classes) - 1
        if channels != params.channels and 2 in (channels, params.channels):
            raise UserError(f"{place}: {pixels} has {channels} channels, params.yaml says {params.channels}")
        if labels.shape != (count,) or labels.dtype.kind not in "iu":
            raise UserError(f"{where} is {labels.dtype} {labels.shape}, expected {count} whole numbers")
        if labels.min() < 0 or labels.max() > last:
            raise UserError(f"{where} go from {labels.min()} to {labels.max()}, but `classes` names only 0 to {last}")
        if empty := [name for label, name in enumerate(params.classes) if label not in labels]:
            raise UserError(f"{where}: no image is of the class {_shown(empty)}")
        parts.append(list(zip(labels.tolist(), images, strict=True)))
    return parts


def _channels_first(where: str, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert `[N, H, W]`, `[N, H, W, C]` or `[N, C, H, W]` to `[N, C, H, W]`. UserError for another type or shape."""
    if images.dtype != np.uint8:
        raise UserError(f"{where} holds {images.dtype} numbers, expected bytes (uint8), 0 black and 255 white")
    match images.shape:
        case (_, _, _):
            images = images[:, None]
        case (_, _, _, 1 | 2 | 3):
            images = images.transpose(0, 3, 1, 2)
        case (_, 1 | 2 | 3, _, _):
            pass
        case shape:
            raise UserError(f"{where} has the shape {shape}, expected [N, H, W], or with 1 to 3 channels C")
    count, _, height, width = images.shape
    if count == 0 or min(height, width) < SMALLEST:
        has = f"has {count:,} images of {width}x{height} pixels"
        raise UserError(f"{where} {has}: there must be images, of at least {SMALLEST} pixels a side")
    return images
