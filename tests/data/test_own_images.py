"""Own images: what comes out of files and arrays, and what is refused by name before anything is decoded."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline import memory
from pipeline.data.datasets import OWN_IMAGES, save_dataset
from pipeline.data.own_images import OwnImagesError, check_places, find, plan, read, repeated
from pipeline.data.published import build_dataset
from pipeline.data.settings import DatasetParams, OwnImagesParams
from pipeline.memory import OutOfMemoryError, available_bytes, check_fits, readable

RANDOM = np.random.default_rng(0)
SIDE = 16


def params(**changes: Any) -> OwnImagesParams:
    values: dict[str, Any] = {
        "path": "pets",
        "format": "folder",
        "test_part": False,
        "classes": ["cat", "dog"],
        "channels": 3,
        "side": SIDE,
        "fit": "crop",
    }
    return OwnImagesParams.model_validate(values | changes)


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


def refusal(settings: OwnImagesParams, root: Path) -> str:
    """The message that images are refused with when they are planned or read."""
    with pytest.raises(OwnImagesError) as caught:
        read(plan("pets", settings, root))
    return str(caught.value)


# ---- what comes out


def test_images_of_the_right_size_keep_their_pixels_in_the_order_of_classes_and_names(pets: Path) -> None:
    data = read(plan("pets", params(classes=["dog", "cat"]), pets))
    files = [pets / "pets" / name for name in ("dog/0.png", "dog/1.png", "cat/0.png", "cat/1.png", "cat/2.png")]
    for image, file in zip(data.images, files, strict=True):
        np.testing.assert_array_equal(image, np.asarray(Image.open(file)).transpose(2, 0, 1))
    assert data.labels.tolist() == [0, 0, 1, 1, 1]
    assert (data.classes, data.label) == (("dog", "cat"), "pets (own images)")


def test_images_of_any_size_are_resized_and_this_is_said_once(pets: Path) -> None:
    put(pets / "pets/cat/wide.jpg", picture(20, 60))
    put(pets / "pets/dog/line.png", picture(1, 3000))
    planned = plan("pets", params(), pets)
    (note,) = planned.notes
    assert note == "images have 3 sizes, 16x16 to 3000x1 pixels: they are resized to 16x16 (fit: crop)"
    for fit in ("crop", "pad", "stretch"):
        assert read(plan("pets", params(fit=fit), pets)).images.shape == (7, 3, SIDE, SIDE)


@pytest.mark.parametrize(("fit", "expected"), [("pad", "black"), ("crop", "middle"), ("stretch", "both")])
def test_an_image_that_is_not_square_is_padded_cropped_or_stretched(tmp_path: Path, fit: str, expected: str) -> None:
    """White in the middle half of its width, grey elsewhere; twice as wide as high."""
    wide = np.full((32, 64), 100, np.uint8)
    wide[:, 16:48] = 255
    for name in ("cat", "dog"):
        put(tmp_path / "pets" / name / "0.png", wide)
    image = read(plan("pets", params(channels=1, fit=fit), tmp_path)).images[0, 0]
    match expected:
        case "black":
            assert (image[:4] == 0).all()
            assert (image[12:] == 0).all()
            assert (image[4:12, 6:10] == 255).all()
            assert (image[4:12, :2] == 100).all()
        case "middle":
            assert (image == 255).all()
        case "both":
            assert (image[:, 6:10] == 255).all()
            assert (image[:, [0, 1, 14, 15]] == 100).all()


def test_colours_become_grey_and_grey_becomes_three_channels_and_both_is_said(pets: Path) -> None:
    grey = picture(channels=1)
    put(pets / "pets/cat/grey.png", grey)
    planned = plan("pets", params(channels=1), pets)
    assert planned.notes == ("5 images in colour become grey (channels: 1)",)
    images = read(planned).images
    np.testing.assert_array_equal(images[3, 0], grey)
    red, green, blue = np.asarray(Image.open(pets / "pets/cat/0.png")).astype(float).transpose(2, 0, 1)
    np.testing.assert_allclose(images[0, 0], 0.299 * red + 0.587 * green + 0.114 * blue, atol=0.51)
    planned = plan("pets", params(channels=3), pets)
    assert planned.notes == ("1 grey images get three equal channels (channels: 3)",)
    np.testing.assert_array_equal(read(planned).images[3], np.stack([grey] * 3))


def test_transparent_pixels_become_black_and_this_is_said(pets: Path) -> None:
    pixels = np.concatenate([np.full((SIDE, SIDE, 3), 200, np.uint8), np.zeros((SIDE, SIDE, 1), np.uint8)], axis=2)
    pixels[:8, :, 3] = 255
    put(pets / "pets/cat/9.png", pixels)
    planned = plan("pets", params(), pets)
    assert planned.notes == ("1 images are transparent in places: these become black",)
    image = read(planned).images[3]
    assert (image[:, :8] == 200).all()
    assert (image[:, 8:] == 0).all()


def test_of_sixteen_bits_the_upper_eight_are_kept(pets: Path) -> None:
    deep = RANDOM.integers(0, 65_536, (SIDE, SIDE)).astype(np.uint16)
    put(pets / "pets/cat/9.png", deep)
    np.testing.assert_array_equal(read(plan("pets", params(channels=1), pets)).images[3, 0], deep >> 8)


def test_images_are_turned_upright(pets: Path) -> None:
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[:, :8] = 255  # its left half, which is the top once turned clockwise
    exif = Image.Exif()
    exif[0x0112] = 6
    put(pets / "pets/cat/9.jpg", pixels, exif=exif, quality=100)
    image = read(plan("pets", params(channels=1), pets)).images[3, 0]
    assert image[:6].min() > 200
    assert image[10:].max() < 50


def test_a_test_part_of_its_own_stays_apart(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("test", 2)):
        for name in ("cat", "dog"):
            for number in range(count):
                put(tmp_path / "pets" / part / name / f"{number}.png", picture())
    planned = plan("pets", params(test_part=True), tmp_path)
    assert planned.summary.startswith("pets: 12 images of 2 classes (8 in train, 4 in test). ")
    data = read(planned)
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [0, 0, 1, 1]
    assert data.split["test"].tolist() == [8, 9, 10, 11]
    save_dataset(tmp_path / "raw" / OWN_IMAGES, data)
    split = {"canvas": 28, "train": 6, "validation": 2, "test": 4, "split_seed": 0}
    built = build_dataset("mine", DatasetParams.model_validate({"source": "pets", **split}), tmp_path / "raw")
    assert set(built.split["test"]) == {8, 9, 10, 11}
    assert built.label == "pets (own images), 28x28"
    np.testing.assert_array_equal(built.images[:, :, 6:22, 6:22], data.images)


def test_equal_images_are_counted(pets: Path) -> None:
    data = read(plan("pets", params(), pets))
    assert repeated(data.images) == 0
    assert repeated(np.concatenate([data.images, data.images[:2], data.images[:1]])) == 3


# ---- arrays


@pytest.mark.parametrize("layout", ["NHW", "NHWC", "NCHW"])
@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_give_the_same_in_each_layout(tmp_path: Path, layout: str, channels: int) -> None:
    given = RANDOM.integers(0, 256, (6, 3, SIDE, SIDE), np.uint8)
    given = given[:, :1] if layout == "NHW" else given
    stored = {"NHW": given[:, 0], "NHWC": given.transpose(0, 2, 3, 1), "NCHW": given}[layout]
    arrays(tmp_path, images=stored)
    data = read(plan("pets", of_arrays(channels=channels), tmp_path))
    assert data.labels.tolist() == [0, 1, 0, 1, 1, 0]
    if channels == 3:
        np.testing.assert_array_equal(data.images, np.broadcast_to(given, (6, 3, SIDE, SIDE)))
    else:
        coloured = [Image.fromarray(image.transpose(1, 2, 0)).convert("L") for image in given if len(image) == 3]
        expected = np.stack([np.asarray(image) for image in coloured]) if coloured else given[:, 0]
        np.testing.assert_array_equal(data.images[:, 0], expected)


def test_arrays_are_resized_and_may_have_a_test_part_and_two_channels(tmp_path: Path) -> None:
    pairs, test = (RANDOM.integers(0, 256, (count, 2, 24, 40), np.uint8) for count in (6, 2))
    arrays(tmp_path, images=pairs, test_images=test, test_labels=np.array([1, 0]))
    planned = plan("pets", of_arrays(channels=2, test_part=True), tmp_path)
    assert planned.counts == (6, 2)
    data = read(planned)
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
        ({"images": np.zeros((6, 5, 16, 16), np.uint8)}, {}, "images has the shape (6, 5, 16, 16)"),
        ({"images": np.zeros((0, 16, 16), np.uint8)}, {}, "has 0 images of 16x16 pixels"),
        ({"images": np.zeros((6, 3, 3), np.uint8)}, {}, "6 images of 3x3 pixels"),
        ({"images": np.zeros((6, 2, 16, 16), np.uint8)}, {}, "images has 2 channels, params.yaml says 1"),
        ({"labels": np.zeros(5, int)}, {}, "labels is int64 (5,), expected 6 whole numbers"),
        ({"labels": np.zeros(6)}, {}, "labels is float64 (6,), expected 6 whole numbers"),
        ({"labels": np.arange(6)}, {}, "labels go from 0 to 5, but `classes` names 0 to 1"),
        ({"labels": np.array([0, 0, 0, 0, 0, -1])}, {}, "labels go from -1 to 0"),
        ({"labels": np.ones(6, int)}, {}, "labels: no image is of the class 'cat'"),
        ({"labels": np.array([object()] * 6)}, {}, "is damaged, or no npz file: "),
    ],
)
def test_arrays_of_another_form_are_refused(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    path = arrays(tmp_path, **changes)
    told = refusal(of_arrays(**settings), tmp_path)
    assert message in told
    assert told.startswith(str(path))


@pytest.mark.parametrize("how", ["cut", "empty", "text", "flipped", "lying header"])
def test_a_damaged_npz_is_named(tmp_path: Path, how: str) -> None:
    path = arrays(tmp_path)
    content = path.read_bytes()
    match how:
        case "cut":
            path.write_bytes(content[:-40])
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("images")
        case "flipped":
            path.write_bytes(content[:600] + bytes([content[600] ^ 0xFF]) + content[601:])
        case "lying header":
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"descr": "|u1", "fortran_order": False, "shape": (10**7, 999, 999)}
            )
            with zipfile.ZipFile(path, "w") as archive:
                for name in ("images.npy", "labels.npy"):
                    archive.writestr(name, header.getvalue())
    told = refusal(of_arrays(), tmp_path)
    assert told.startswith(f"{path} is damaged")


# ---- refusals


def test_a_place_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for settings, message in (
        (params(path="nowhere"), r"own_images\.pets\.path: .*nowhere is not there"),
        (params(path="file"), "is not a folder, as format: folder needs"),
        (of_arrays(path="folder"), "is not a file, as format: npz needs"),
    ):
        with pytest.raises(match=message):
            find(settings, "own_images.pets", tmp_path)


def test_a_path_may_be_absolute_a_link_or_outside_the_repository(pets: Path) -> None:
    root = pets / "repository"
    root.mkdir()
    (root / "link").symlink_to("../pets")
    for path in (str(pets / "pets"), "../pets", "../pets/", "link"):
        assert sum(plan("pets", params(path=path), root).counts) == 5


@pytest.mark.parametrize("path", [".", "..", "data", "data/raw/pets", "data/raw/pets/more", "models"])
def test_a_folder_that_stages_write_to_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "root" / path).mkdir(parents=True, exist_ok=True)
    with pytest.raises(match="which a stage writes"):
        check_places({"pets": params(path=path)}, tmp_path / "root", ["data/raw/pets", "models/vae"])


def test_folders_and_classes_must_be_the_same(pets: Path) -> None:
    assert refusal(params(classes=["cow", "dog"]), pets) == f"{pets}/pets has no folder for 'cow' of `classes`"
    (pets / "pets/cow").mkdir()
    assert refusal(params(), pets) == f"{pets}/pets has folders that are not among `classes`: 'cow'"
    assert f"{pets}/pets/cow holds no images" in refusal(params(classes=["cat", "dog", "cow"]), pets)


def test_what_is_no_image_in_a_class_folder_is_named(pets: Path) -> None:
    for ignored in ("pets/labels.csv", "pets/cat/.DS_Store", "pets/cat/Thumbs.db"):
        (pets / ignored).write_text("")
    find(params(), "", pets)
    (pets / "pets/cat/x.gif").write_text("")
    assert "pets/cat must hold .png, .jpg, .jpeg files only: move or convert 'x.gif'" in refusal(params(), pets)
    (pets / "pets/cat/x.gif").unlink()
    (pets / "pets/cat/sub").mkdir()
    assert "move or convert 'sub'" in refusal(params(), pets)
    (pets / "pets/cat/sub").rmdir()
    (pets / "pets/loose.png").write_text("")
    assert "holds 'loose.png': an image must be in the folder of its class" in refusal(params(), pets)


def test_train_and_test_folders_and_no_others_are_asked_for_by_test_part(pets: Path) -> None:
    assert refusal(params(test_part=True), pets) == f"{pets}/pets has no folder for 'test', 'train' of `test_part`"
    for name in ("train", "test"):
        (pets / "pets" / name).mkdir()
    assert "not among `test_part`: 'cat', 'dog'" in refusal(params(test_part=True), pets)


def test_links_pipes_and_names_that_are_not_utf8_are_refused_without_opening_them(pets: Path) -> None:
    folder = pets / "pets" / "dog"
    (folder / "link.png").symlink_to("0.png")
    assert "dog/link.png' is a link" in refusal(params(), pets)
    (folder / "link.png").unlink()
    os.mkfifo(folder / "pipe.png")
    assert "dog/pipe.png' is neither a file nor a folder" in refusal(params(), pets)
    (folder / "pipe.png").unlink()
    with open(os.fsencode(folder) + b"/\xff.png", "wb"):  # noqa: PTH123
        pass
    assert r"dog/\xff.png: the name is not UTF-8" in refusal(params(), pets)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root")
def test_a_folder_that_cannot_be_read_is_named(pets: Path) -> None:
    (pets / "pets" / "cat").chmod(0)
    assert refusal(params(), pets) == f"{pets}/pets/cat cannot be read: Permission denied"


def test_accents_written_in_two_ways_are_one_name(tmp_path: Path) -> None:
    put(tmp_path / "pets/cafe\u0301/0.png", picture())
    put(tmp_path / "pets/dog/0.png", picture())
    assert plan("pets", params(classes=["caf\u00e9", "dog"]), tmp_path).counts == (2, 0)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that states any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_000, 5_001), (10_000, 10_000), (60_000, 60_000)])
def test_an_image_of_billions_of_pixels_is_refused_by_its_header(
    pets: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (pets / "pets/cat/bomb.png").write_bytes(bomb(*size))
    told = refusal(params(), pets)
    assert told == f"{pets}/pets/cat/bomb.png has more than 50,000,000 pixels: make it smaller"


@pytest.mark.parametrize("how", ["cut", "empty", "text", "flipped", "gif", "svg"])
def test_a_damaged_image_is_named(pets: Path, how: str) -> None:
    path = pets / "pets/dog/1.png"
    content = path.read_bytes()
    match how:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("a dog")
        case "flipped":
            path.write_bytes(content[:100] + bytes([content[100] ^ 0xFF]) + content[101:])
        case "gif":
            Image.fromarray(picture()).save(path, format="GIF")
        case "svg":
            path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert refusal(params(), pets).startswith(f"{path} ")


def test_kinds_of_images_that_would_be_misread_are_refused(pets: Path) -> None:
    file = pets / "pets/cat/9.jpg"
    Image.fromarray(picture()).convert("CMYK").save(file)
    assert refusal(params(), pets) == f"{file} has colours of the kind CMYK: save it as RGB or grey"
    file.unlink()
    frames = [Image.fromarray(picture()) for _ in range(2)]
    frames[0].save(pets / "pets/cat/9.png", save_all=True, append_images=frames[1:])
    assert refusal(params(), pets).endswith("9.png is animated: save it as one image")


# ---- memory


def test_memory_is_announced_and_what_does_not_fit_is_refused_before_decoding(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan("pets", params(), pets)
    assert "5 images of 2 classes. As 3x16x16 they take 3.8 kB" in planned.summary
    assert "about 11.5 kB in a training" in planned.summary
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * planned.kept)
    with pytest.raises(OutOfMemoryError, match=r"own_images\.pets: 5 images: about 10\.8 kB of memory needed, 7\.7 kB"):
        plan("pets", params(), pets)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_bytes()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMIT", limit)
    for content, expected in (("1000000\n", 1_000_000), ("max\n", free), (str(10**18), free)):
        limit.write_text(content)
        assert available_bytes() == pytest.approx(expected, rel=0.2)
    check_fits(10, "ten bytes", "")


def test_sizes_in_words() -> None:
    assert [readable(count) for count in (7, 1234, 56_700_000, 5.2e9, 999e9, 4e15)] == [
        "7 bytes", "1.2 kB", "56.7 MB", "5.2 GB", "999 GB", "4,000.0 TB",
    ]  # fmt: skip
