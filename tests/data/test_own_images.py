"""Own images: what comes out of files and arrays, and what is refused by name."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline import memory
from pipeline.data import own_images
from pipeline.data.datasets import OWN_IMAGES, Dataset, save_dataset
from pipeline.data.own_images import check_places, find
from pipeline.data.published import build_dataset
from pipeline.data.settings import DatasetParams, OwnImagesParams
from pipeline.errors import UserError
from pipeline.memory import available_bytes

RANDOM = np.random.default_rng(0)
SIDE = 16


def params(**changes: Any) -> OwnImagesParams:
    values = {"path": "pets", "format": "folder", "test_part": False, "classes": ["cat", "dog"]}
    return OwnImagesParams.model_validate({**values, "channels": 3, "side": SIDE, "fit": "crop", **changes})


def picture(height: int = SIDE, width: int = SIDE, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return RANDOM.integers(0, 256, shape, np.uint8)


def put(path: Path, pixels: np.ndarray, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three cats and two dogs in colour, of the side that is asked for."""
    for name, count in (("cat", 3), ("dog", 2)):
        for number in range(count):
            put(tmp_path / "pets" / name / f"{number}.png", picture())
    return tmp_path


def arrays(tmp_path: Path, **changes: Any) -> Path:
    values: dict[str, Any] = {
        "images": RANDOM.integers(0, 256, (6, SIDE, SIDE), np.uint8),
        "labels": np.array([0, 1, 0, 1, 1, 0]),
    }
    path = tmp_path / "pets.npz"
    np.savez(path, **{name: array for name, array in (values | changes).items() if array is not None})
    return path


def of_arrays(**changes: Any) -> OwnImagesParams:
    return params(**{"path": "pets.npz", "format": "npz", "channels": 1} | changes)


def read(settings: OwnImagesParams, root: Path) -> tuple[Dataset, list[str]]:
    """The images, and what is told of them after their number."""
    with redirect_stdout(StringIO()) as told:
        data = own_images.read("pets", settings, root)
    return data, [line.strip() for line in told.getvalue().splitlines()[1:]]


def refusal(settings: OwnImagesParams, root: Path) -> str:
    """The message that images are refused with."""
    with pytest.raises(UserError) as caught:
        read(settings, root)
    return str(caught.value)


def test_images_of_the_right_size_keep_their_pixels_in_the_order_of_classes_and_names(pets: Path) -> None:
    put(pets / "pets/dog/2.png", np.asarray(Image.open(pets / "pets/cat/0.png")))
    data, told = read(params(classes=["dog", "cat"]), pets)
    files = [pets / "pets" / name for name in ("dog/0.png", "dog/1.png", "cat/0.png", "cat/0.png", "cat/1.png")]
    for image, file in zip(data.images, files, strict=False):
        np.testing.assert_array_equal(image, np.asarray(Image.open(file)).transpose(2, 0, 1))
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert (data.classes, data.label) == (("dog", "cat"), "pets (own images)")
    assert told == ["repeats of earlier images: 1; training and test images may overlap"]


def test_an_image_of_another_size_is_padded_cropped_or_stretched(tmp_path: Path) -> None:
    """White in the middle half of its width, grey elsewhere; twice as wide as high."""
    wide = np.full((32, 64), 100, np.uint8)
    wide[:, 16:48] = 255
    for name, pixels in (("cat", wide), ("dog", picture(1, 3000, 1))):
        put(tmp_path / "pets" / name / "0.png", pixels)

    def fitted(fit: str) -> np.ndarray:
        return read(params(channels=1, fit=fit), tmp_path)[0].images[0, 0]

    assert (fitted("pad")[[0, 3, 12, 15]] == 0).all()
    assert (fitted("pad")[4:12, 6:10] == 255).all()
    assert (fitted("pad")[4:12, :2] == 100).all()
    assert (fitted("crop") == 255).all()
    assert (fitted("stretch")[:, 6:10] == 255).all()
    assert (fitted("stretch")[:, [0, 1, 14, 15]] == 100).all()


def test_colours_become_grey_and_grey_becomes_three_channels(pets: Path) -> None:
    grey = picture(channels=1)
    put(pets / "pets/cat/grey.png", grey)
    data, _ = read(params(channels=1), pets)
    np.testing.assert_array_equal(data.images[3, 0], grey)
    red, green, blue = np.asarray(Image.open(pets / "pets/cat/0.png")).astype(float).transpose(2, 0, 1)
    np.testing.assert_allclose(data.images[0, 0], 0.299 * red + 0.587 * green + 0.114 * blue, atol=0.51)
    np.testing.assert_array_equal(read(params(channels=3), pets)[0].images[3], np.stack([grey] * 3))


def test_transparent_pixels_become_black_images_are_turned_upright_and_of_16_bits_8_are_kept(pets: Path) -> None:
    half = np.full((SIDE, SIDE, 4), 200, np.uint8)
    half[..., 3] = np.where(np.arange(SIDE) < 8, 255, 0)[:, None]
    put(pets / "pets/cat/7.png", half)
    exif = Image.Exif()
    exif[0x0112] = 6
    left = np.where(np.arange(SIDE) < 8, 255, 0).astype(np.uint8)[None].repeat(SIDE, axis=0)
    put(pets / "pets/cat/8.jpg", left, exif=exif, quality=100)  # its left half is the top once turned clockwise
    deep = RANDOM.integers(0, 65_536, (SIDE, SIDE)).astype(np.uint16)
    put(pets / "pets/cat/9.png", deep)
    transparent, turned, of_16_bits = read(params(channels=1), pets)[0].images[3:6, 0]
    assert (transparent[:8] == 200).all()
    assert (transparent[8:] == 0).all()
    assert turned[:6].min() > 200 > 50 > turned[10:].max()
    np.testing.assert_array_equal(of_16_bits, deep >> 8)


def test_a_test_part_of_its_own_stays_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, count in (("train", 4), ("test", 2)):
        for name in ("cat", "dog"):
            for number in range(count):
                put(tmp_path / "pets" / part / name / f"{number}.png", picture())
    data = own_images.read("pets", params(test_part=True), tmp_path)
    told = capsys.readouterr().out
    assert told.startswith("pets: 12 images of 2 classes (8 in train, 4 in test). As 3x16x16 they take 9.22kB, ")
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [0, 0, 1, 1]
    assert data.split["test"].tolist() == [8, 9, 10, 11]
    save_dataset(tmp_path / "raw" / OWN_IMAGES, data)
    split = {"canvas": 28, "train": 6, "validation": 2, "test": 4, "split_seed": 0}
    built = build_dataset("mine", DatasetParams.model_validate({"source": "pets", **split}), tmp_path / "raw")
    assert set(built.split["test"]) == {8, 9, 10, 11}
    assert built.label == "pets (own images), 28x28"
    np.testing.assert_array_equal(built.images[:, :, 6:22, 6:22], data.images)


@pytest.mark.parametrize("layout", ["NHW", "NHWC", "NCHW"])
@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_give_the_same_in_each_layout(tmp_path: Path, layout: str, channels: int) -> None:
    given = RANDOM.integers(0, 256, (6, 3, SIDE, SIDE), np.uint8)
    given = given[:, :1] if layout == "NHW" else given
    stored = {"NHW": given[:, 0], "NHWC": given.transpose(0, 2, 3, 1), "NCHW": given}[layout]
    arrays(tmp_path, images=stored)
    data, _ = read(of_arrays(channels=channels), tmp_path)
    assert data.labels.tolist() == [0, 1, 0, 1, 1, 0]
    if channels == 1 and layout != "NHW":
        grey = [np.asarray(Image.fromarray(image.transpose(1, 2, 0)).convert("L"))[None] for image in given]
        given = np.stack(grey)
    np.testing.assert_array_equal(data.images, np.broadcast_to(given, (6, channels, SIDE, SIDE)))


def test_arrays_are_resized_and_may_have_a_test_part_and_two_channels(tmp_path: Path) -> None:
    pairs, test = (RANDOM.integers(0, 256, (count, 2, 24, 40), np.uint8) for count in (6, 2))
    arrays(tmp_path, images=pairs, test_images=test, test_labels=np.array([1, 0]))
    data, _ = read(of_arrays(channels=2, test_part=True), tmp_path)
    assert data.images.shape == (8, 2, SIDE, SIDE)
    assert data.split["test"].tolist() == [6, 7]
    assert data.labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]
    middle = Image.fromarray(test[0, 1][:, 8:32]).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(data.images[6, 1], np.asarray(middle))


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({"labels": None}, {}, "must hold the arrays images, labels, and no others (found: images)"),
        ({"extra": np.zeros(2)}, {}, "(found: extra, images, labels)"),
        ({}, {"test_part": True}, "must hold the arrays images, labels, test_images, test_labels"),
        ({"images": np.zeros((6, 16, 16))}, {}, "images holds float64 numbers, expected bytes (uint8)"),
        ({"images": np.zeros((6, 256), np.uint8)}, {}, "images has the shape (6, 256), expected [N, H, W]"),
        ({"images": np.zeros((0, 16, 16), np.uint8)}, {}, "has 0 images of 16x16 pixels"),
        ({"images": np.zeros((6, 3, 3), np.uint8)}, {}, "6 images of 3x3 pixels"),
        ({"images": np.zeros((6, 2, 16, 16), np.uint8)}, {}, "images has 2 channels, params.yaml says 1"),
        ({"labels": np.zeros(6)}, {}, "labels is float64 (6,), expected 6 whole numbers"),
        ({"labels": np.arange(6)}, {}, "labels go from 0 to 5, but `classes` names only 0 to 1"),
        ({"labels": np.ones(6, int)}, {}, "labels: no image is of the class 'cat'"),
        ({"labels": np.array([object()] * 6)}, {}, "it is damaged, or of another kind"),
    ],
)
def test_arrays_of_another_form_are_refused(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    path = arrays(tmp_path, **changes)
    told = refusal(of_arrays(**settings), tmp_path)
    assert message in told
    assert told.startswith(str(path))


@pytest.mark.parametrize("how", ["flipped", "lying header"])
def test_a_damaged_npz_is_named(tmp_path: Path, how: str) -> None:
    path = arrays(tmp_path)
    if how == "flipped":
        content = path.read_bytes()
        path.write_bytes(content[:600] + bytes([content[600] ^ 0xFF]) + content[601:])
    else:
        header = BytesIO()
        shape = {"descr": "|u1", "fortran_order": False, "shape": (10**7, 999, 999)}
        np.lib.format.write_array_header_1_0(header, shape)
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("images.npy", "labels.npy"):
                archive.writestr(name, header.getvalue())
    assert refusal(of_arrays(), tmp_path).startswith(f"{path} cannot be read (")


def test_a_place_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for settings, message in (
        (params(path="nowhere"), r"own_images\.pets\.path: .*nowhere is not there"),
        (params(path="file"), "must be a folder for the format 'folder'"),
        (of_arrays(path="folder"), "must be a file for the format 'npz'"),
    ):
        with pytest.raises(UserError, match=message):
            find(settings, "own_images.pets", tmp_path)


def test_a_path_may_be_absolute_a_link_or_outside_the_repository(pets: Path) -> None:
    root = pets / "repository"
    root.mkdir()
    (root / "link").symlink_to("../pets")
    for path in (str(pets / "pets"), "../pets", "../pets/", "link"):
        assert [len(part) for part in find(params(path=path), "", root)] == [5]


@pytest.mark.parametrize("path", [".", "..", "data", "data/raw/pets", "data/raw/pets/more", "models"])
def test_a_folder_that_stages_write_to_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "root" / path).mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match="which a stage writes"):
        check_places({"pets": params(path=path)}, tmp_path / "root", ["data/raw/pets", "models/vae"])


def test_folders_and_classes_must_be_the_same(pets: Path) -> None:
    for ignored in ("pets/labels.csv", "pets/cat/.DS_Store", "pets/cat/Thumbs.db"):
        (pets / ignored).write_text("")
    find(params(), "", pets)
    assert refusal(params(classes=["cow", "dog"]), pets) == f"{pets}/pets has no folder 'cow', which `classes` asks for"
    assert "has no folder 'test', 'train', which `test_part: true` asks for" in refusal(params(test_part=True), pets)
    (pets / "pets/cow").mkdir()
    assert refusal(params(), pets) == f"{pets}/pets has folders that `classes` does not name: 'cow'"
    assert f"{pets}/pets/cow holds no images" in refusal(params(classes=["cat", "dog", "cow"]), pets)


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("cat/x.gif", Path.touch, "pets/cat must hold .png, .jpg, .jpeg files only: move or convert 'x.gif'"),
        ("cat/sub", Path.mkdir, "move or convert 'sub'"),
        ("loose.png", Path.touch, "holds 'loose.png': an image must be in the folder of its class"),
        ("dog/link.png", lambda path: path.symlink_to("0.png"), "dog/link.png' is a link"),
        ("dog/pipe.png", os.mkfifo, "dog/pipe.png' is neither a file nor a folder"),
        (os.fsdecode(b"dog/\xff.png"), Path.touch, r"dog/\xff.png: the name is not UTF-8"),
    ],
    ids=["kind", "folder", "loose", "link", "pipe", "name"],
)
def test_what_is_no_image_in_a_class_folder_is_named(
    pets: Path, name: str, make: Callable[[Path], object], told: str
) -> None:
    make(pets / "pets" / name)
    assert told in refusal(params(), pets)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root")
def test_a_folder_that_cannot_be_read_is_named(pets: Path) -> None:
    (pets / "pets" / "cat").chmod(0)
    assert refusal(params(), pets) == f"{pets}/pets/cat cannot be read: Permission denied"


def test_accents_written_in_two_ways_are_one_name(tmp_path: Path) -> None:
    put(tmp_path / "pets/cafe\u0301/0.png", picture())
    put(tmp_path / "pets/dog/0.png", picture())
    assert len(read(params(classes=["caf\u00e9", "dog"]), tmp_path)[0].images) == 2


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that states any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def as_animation(path: Path) -> None:
    first, second = (Image.fromarray(picture()) for _ in range(2))
    first.save(path, save_all=True, append_images=[second])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "it is damaged"),
        (lambda path: Image.fromarray(picture()).save(path, format="GIF"), "of another kind"),
        (lambda path: Image.new("CMYK", (SIDE, SIDE)).save(path, format="JPEG"), "has colours of the kind CMYK"),
        (as_animation, "is animated: save it as one image"),
        (lambda path: path.write_bytes(bomb(10_000, 5_001)), "has more than 50,000,000 pixels: make it smaller"),
        (lambda path: path.write_bytes(bomb(60_000, 60_000)), "3600000000 pixels"),
    ],
    ids=["cut", "gif", "CMYK", "animated", "large", "bomb"],
)
def test_an_image_that_cannot_be_used_is_named(pets: Path, make: Callable[[Path], object], told: str) -> None:
    path = pets / "pets/dog/1.png"
    make(path)
    message = refusal(params(), pets)
    assert message.startswith(f"{path} ")
    assert told in message


def test_what_does_not_fit_into_memory_is_refused_before_decoding(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pets / "pets/cat/0.png").write_text("not looked at")
    monkeypatch.setattr(memory, "available_bytes", lambda: 5000)
    with pytest.raises(UserError, match=r"own_images\.pets: 5 images: about 7\.68kB of memory needed, 5\.00kB"):
        read(params(), pets)
    put(pets / "pets/cat/0.png", picture(100, 100))
    monkeypatch.setattr(memory, "available_bytes", lambda: 20_000)
    with pytest.raises(UserError, match=r"cat/0\.png: about 120kB of memory needed.* Make it smaller"):
        read(params(), pets)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_bytes()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMIT", limit)
    for content, expected in (("1000000\n", 1_000_000), ("max\n", free), (str(10**18), free)):
        limit.write_text(content)
        assert available_bytes() == pytest.approx(expected, rel=0.2)
