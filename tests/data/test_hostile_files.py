"""Files that are cut, damaged or made to do harm: an error that names the file, in bounded time and memory."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged, in_little_memory, thorough
from scipy.io import savemat

from pipeline.data import datasets
from pipeline.data.cifar import read_cifar10
from pipeline.data.datasets import Dataset, DatasetError, load_dataset, pixel_bytes, save_dataset
from pipeline.data.formats import FormatError, read_affnist, read_digits, read_idx
from pipeline.data.norb import read_matrix, read_smallnorb48
from pipeline.errors import UserError

RANDOM = np.random.default_rng(0)
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def result_or_named(read: Callable[[Path], Any], path: Path, content: bytes) -> Any:
    """What `read` makes of `content`; None if it refuses it by name. Any other exception is a failure."""
    path.write_bytes(content)
    try:
        return read(path)
    except UserError as error:
        refusal = error
    assert refusal.exit_code in (1, 2)
    assert str(path) in str(refusal)
    return None


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def idx(shape: tuple[int, ...], content: bytes) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + content


def matrix(shape: tuple[int, ...], content: bytes) -> bytes:
    stored = [*shape, 1, 1][: max(3, len(shape))]
    return struct.pack(f"<{2 + len(stored)}I", 0x1E3D4C55, len(shape), *stored) + content


IDX = idx((3, 4, 5), RANDOM.bytes(60))
MATRIX = matrix((3, 4, 5), RANDOM.bytes(60))


@thorough
@given(content=st.one_of(damaged(packed(IDX)), damaged(IDX).map(packed)))
def test_a_damaged_idx_file(folder: Path, content: bytes) -> None:
    array = result_or_named(read_idx, folder / "a.gz", content)
    assert array is None or (array.dtype == np.uint8 and gzip.decompress(content).endswith(array.tobytes()))


@thorough
@given(content=st.one_of(damaged(packed(MATRIX)), damaged(MATRIX).map(packed)))
def test_a_damaged_matrix_of_norb(folder: Path, content: bytes) -> None:
    array = result_or_named(read_matrix, folder / "a.gz", content)
    assert array is None or gzip.decompress(content).endswith(array.tobytes())


@thorough
@given(content=damaged(b"1," * 64 + b"5\n").map(packed))
def test_a_damaged_table_of_digits(folder: Path, content: bytes) -> None:
    found = result_or_named(read_digits, folder / "a.gz", content)
    assert found is None or (found[0].shape[1:] == (8, 8) and len(found[0]) == len(found[1]))


@pytest.mark.parametrize("dimensions", [9, 65, 255])
def test_too_many_dimensions(tmp_path: Path, dimensions: int) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(packed(idx((1,) * dimensions, b"!")))
    with pytest.raises(FormatError, match=rf"a\.gz holds idx data of type 0x08 in {dimensions} dimensions"):
        read_idx(path)


@pytest.mark.parametrize("shape", [(2**32 - 1,), (2**32 - 1,) * 8, (10_000, 10_000, 10_000), (0, *(2**32 - 1,) * 7)])
@pytest.mark.parametrize(("read", "make"), [(read_idx, idx), (read_matrix, matrix)])
def test_a_header_that_claims_more_than_the_file_can_hold(
    tmp_path: Path, shape: tuple[int, ...], read: Callable[[Path], Any], make: Callable[..., bytes]
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(packed(make(shape, b"")))
    with pytest.raises(FormatError, match=r"a\.gz claims .* more than it can hold"):
        read(path)


def bomb(header: bytes, megabytes: int) -> bytes:
    """A gzip'd file of zeros after a header."""
    return packed(header) + packed(bytes(MEGABYTE)) * megabytes


@pytest.mark.parametrize("shape", [(10, 28, 28), (3000, 1024, 1024)], ids=["small", "honest"])
@pytest.mark.parametrize(
    ("header", "imports", "call"),
    [
        (idx, "from pipeline.data.formats import read_idx", "read_idx(path)"),
        (matrix, "from pipeline.data.norb import read_matrix", "read_matrix(path)"),
    ],
)
def test_a_gzip_bomb_is_not_unpacked(
    tmp_path: Path, shape: tuple[int, ...], header: Callable[..., bytes], imports: str, call: str
) -> None:
    """3 GB from 3 MB, whatever its header says."""
    (tmp_path / "a.gz").write_bytes(bomb(header(shape, b""), 3000))
    printed = in_little_memory(tmp_path / "a.gz", imports, call, 64)
    assert printed.startswith(f"1 {tmp_path / 'a.gz'} ")


def test_a_bomb_of_digits_or_cifar_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(bomb(b"1," * 64, 1000))
    assert "more than 1000000 bytes" in in_little_memory(
        path, "from pipeline.data.formats import read_digits", "read_digits(path)", 64
    )
    assert "more than 268435456 bytes" in in_little_memory(
        path, "from pipeline.data.cifar import read_cifar10", "read_cifar10(path)", 400
    )


def batch(count: int = 2) -> bytes:
    pixels = RANDOM.integers(0, 256, (count, 3072), np.uint8)
    return pickle.dumps({b"data": pixels, b"labels": [1] * count}, protocol=2)


def archive(contents: list[bytes]) -> bytes:
    file = io.BytesIO()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, content in zip(names, contents, strict=True):
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return file.getvalue()


BATCH = batch()
ARCHIVE = archive([BATCH] * 6)


@thorough
@given(
    content=st.one_of(
        damaged(packed(ARCHIVE)),
        damaged(ARCHIVE).map(packed),
        damaged(BATCH).map(lambda changed: packed(archive([changed, *[BATCH] * 5]))),
    )
)
def test_a_damaged_archive_of_cifar(folder: Path, content: bytes) -> None:
    found = result_or_named(read_cifar10, folder / "c.tar.gz", content)
    assert found is None or (found[0].shape[1:] == (3, 32, 32) and len(found[0]) == len(found[1]))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x02}r\xff\xff\xff\x7f.", id="a memo of 2 billion"),
        pytest.param(b"\x80\x05\x96" + (10**11).to_bytes(8, "little") + b".", id="100 GB of bytes"),
        pytest.param(b"\x80\x04\x8e" + (10**11).to_bytes(8, "little") + b".", id="100 GB of a string"),
        pytest.param(b"\x80\x02})" + b"\x85" * 3_000_000 + b"K\x01s.", id="nested tuples"),
        pytest.param(b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".", id="nested lists"),
    ],
)
def test_a_pickle_that_asks_for_much(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.tar.gz"
    path.write_bytes(packed(archive([content, *[BATCH] * 5])))
    printed = in_little_memory(path, "from pipeline.data.cifar import read_cifar10", "read_cifar10(path)", 400)
    assert "data_batch_1 " in printed


def test_an_archive_with_a_negative_size_ends(tmp_path: Path) -> None:
    """Python's `tarfile` reads this again and again."""
    changed = bytearray(ARCHIVE)
    changed[124:136] = b"\xff" * 10 + b"\xfc\x00"  # -1024: back to its own header
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed[:512])
    path = tmp_path / "c.tar.gz"
    path.write_bytes(packed(bytes(changed)))
    printed = in_little_memory(path, "from pipeline.data.cifar import read_cifar10", "read_cifar10(path)", 400)
    assert f"{path} is damaged" in printed


# ---- data sets


def example() -> Dataset:
    return Dataset(
        name="toys",
        label="toys (stand-in)",
        images=RANDOM.integers(0, 256, (6, 2, 4, 4), np.uint8),
        labels=np.arange(6),
        factors={"kind": np.array(list("abcdef"))},
        split={"train": np.array([3, 0]), "validation": np.array([5]), "test": np.array([1, 2])},
        classes=("cat", "dog"),
    )


@pytest.fixture(scope="module")
def dataset(folder: Path) -> bytes:
    save_dataset(folder / "good.npz", example())
    return (folder / "good.npz").read_bytes()


def with_member(content: bytes, name: str, member: bytes) -> bytes:
    """A zip archive with one member replaced, with the right checksum."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for each in old.namelist():
            new.writestr(each, member if each == name else old.read(each))
    return made.getvalue()


@thorough
@given(data=st.data())
def test_a_damaged_data_set(folder: Path, dataset: bytes, data: st.DataObject) -> None:
    with zipfile.ZipFile(io.BytesIO(dataset)) as good:
        name = data.draw(st.sampled_from([None, *good.namelist()]))
        whole = good.read(name) if name else dataset
    if name:
        content = with_member(dataset, name, data.draw(damaged(whole)))
    else:  # its directory is at the end
        content = data.draw(st.one_of(damaged(dataset), damaged(dataset[::-1]).map(lambda turned: turned[::-1])))
    found = result_or_named(load_dataset, folder / "mine.npz", content)
    if found is not None:
        assert len(found.images) == len(found.labels)
        for part in datasets.PARTS:
            found.part(part)
    assert pixel_bytes(folder / "mine.npz") >= 0


def npy(descr: str, shape: str, content: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


@pytest.mark.parametrize(
    "member",
    [
        npy("'|u1'", "(1000000000000,)"),
        npy("'|u1'", "(1000000000000, 1, 2, 2)", bytes(4)),
        npy("'|u1'", "(-2, -3, 1, 1)", bytes(6)),
        npy("'|u1'", "(0, 10000000000000000000000, 1, 1)"),
        npy("'|u1'", "(True, 1, 2, 3)", bytes(6)),
        npy("'<U0'", "(1000000000000,)"),
        npy("'<U1000000000'", "(1,)"),
        npy("'|O'", "(1,)", pickle.dumps([1])),
        npy("('|u1', (1000000, 1000000))", "(1,)"),
        npy("'|u1'", "(" * 3000 + ")" * 3000),
        npy("'|u1'", "-" * 9000 + "1"),
        npy("'|u1'", "6"),
        b"",
    ],
)
@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "split/train.npy", "format.npy"])
def test_a_lying_array_in_a_data_set(tmp_path: Path, dataset: bytes, name: str, member: bytes) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(with_member(dataset, name, member))
    with pytest.raises(DatasetError, match=r"mine\.npz is (damaged|not a data set).*delete it"):
        load_dataset(path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("labels", np.array(3)),
        ("labels", np.zeros(6)),
        ("images", np.zeros((), np.uint8)),
        ("split/train", np.array(0)),
        ("split/train", np.array([0.5])),
        ("split/train", np.array(["a"])),
        ("factors/kind", np.zeros(5)),
        ("factors/kind", np.array(1)),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(tmp_path: Path, dataset: bytes, name: str, array: Any) -> None:
    member = io.BytesIO()
    np.save(member, array)
    path = tmp_path / "mine.npz"
    path.write_bytes(with_member(dataset, f"{name}.npy", member.getvalue()))
    with pytest.raises(DatasetError, match=r"mine\.npz is not a data set of this pipeline"):
        load_dataset(path)


def zip_bomb(path: Path, megabytes: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        with made.open("images.npy", "w") as member:
            member.write(npy("'|u1'", f"({megabytes}, 1, 1024, 1024)"))
            for _ in range(megabytes):
                member.write(bytes(MEGABYTE))
        made.writestr("labels.npy", npy("'<i8'", "(0,)"))


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    zip_bomb(path, 600)
    assert path.stat().st_size < 10 * MEGABYTE
    imports = "from pipeline.data import datasets; datasets.available_bytes = lambda: 10**8"
    printed = in_little_memory(path, imports, "datasets.load_dataset(path)", 64)
    assert f"1 {path} does not fit into memory" in printed
    imports = "from pipeline.data.norb import read_smallnorb48"
    printed = in_little_memory(path, imports, "read_smallnorb48(path, True)", 64)
    assert f"1 {path} is damaged: its arrays have 629" in printed


def test_a_directory_that_lies_about_sizes(tmp_path: Path, dataset: bytes) -> None:
    """The images have 192 bytes; the archive's directory says that they have 100 MB."""
    path = tmp_path / "mine.npz"
    place = dataset.rindex(b"images.npy") - 46 + 24  # in the directory, which is last
    path.write_bytes(dataset[:place] + struct.pack("<I", 10**8) + dataset[place + 4 :])
    with pytest.raises(DatasetError, match=r"mine\.npz is damaged \(images\.npy claims 100000000 bytes"):
        load_dataset(path)


def test_an_unreadable_data_set_is_not_called_damaged(
    tmp_path: Path, dataset: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(dataset)

    def refuse(path: Path, *_: object, **__: object) -> None:  # root may read whatever its mode
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DatasetError, match=r"mine\.npz cannot be read: Permission denied$"):
        load_dataset(path)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "a"
    os.mkfifo(path)
    for read in (load_dataset, read_idx, read_matrix, read_cifar10, read_affnist):
        with pytest.raises(UserError, match=str(path)):
            read(path)
    assert pixel_bytes(path) == 0


@thorough
@given(data=st.data())
def test_a_damaged_smaller_copy_of_norb(folder: Path, data: st.DataObject) -> None:
    made = io.BytesIO()
    names = ("category", "instance", "elevation", "azimuth", "lighting")
    np.savez(made, images=np.zeros((2, 2, 48, 48), np.uint8), **{name: np.zeros(2, np.uint8) for name in names})
    with zipfile.ZipFile(made) as good:
        name = data.draw(st.sampled_from(good.namelist()))
        content = with_member(made.getvalue(), name, data.draw(damaged(good.read(name))))
    found = result_or_named(lambda path: read_smallnorb48(path, posed=True), folder / "test.npz", content)
    assert found is None or found.images.shape[1:] == (2, 48, 48)


# ---- affNIST


def affnist(path: Path, **options: Any) -> bytes:
    columns, labels = RANDOM.integers(0, 256, (1600, 3), np.uint8), np.array([[1, 2, 3]], np.uint8)
    savemat(path, {"affNISTdata": {"image": columns, "label_int": labels}}, **options)
    return path.read_bytes()


@pytest.mark.parametrize("compressed", [True, False])
def test_a_damaged_file_of_affnist(folder: Path, compressed: bool) -> None:
    good = affnist(folder / "good.mat", do_compression=compressed)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as new:
        new.writestr("1.mat", good)

    @thorough
    @given(content=damaged(good[128:]), archived=damaged(made.getvalue()[::-1]))
    def check(content: bytes, archived: bytes) -> None:
        for name, changed in (("a.mat", good[:128] + content), ("a.zip", archived[::-1])):
            found = result_or_named(read_affnist, folder / name, changed)
            assert found is None or (found[0].shape[1:] == (40, 40) and len(found[0]) == len(found[1]))

    check()


@pytest.mark.parametrize("shape", [(2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (-1, -(2**30))])
def test_a_file_of_affnist_that_claims_many_structs(tmp_path: Path, shape: tuple[int, int]) -> None:
    path = tmp_path / "a.mat"
    content = bytearray(affnist(path, do_compression=False))
    content[160:168] = struct.pack("<ii", *shape)
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.mat is not an affNIST file: it claims structs or cells of shape"):
        read_affnist(path)


def test_a_bomb_in_a_file_of_affnist_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    inflated = zlib.compress(struct.pack("<II", 14, 10**9) + bytes(300 * MEGABYTE), 1)
    path.write_bytes(affnist(tmp_path / "good.mat")[:128] + struct.pack("<II", 15, len(inflated)) + inflated)
    printed = in_little_memory(
        path, "import scipy.io\nfrom pipeline.data.formats import read_affnist", "read_affnist(path)", 200
    )
    assert f"1 {path} is not an affNIST file: a variable is cut short, or has more than" in printed
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        made.writestr("1.mat", bytes(100 * MEGABYTE))
    with pytest.raises(FormatError, match=r"a\.zip: 1\.mat has 104857600 bytes, more than"):
        read_affnist(tmp_path / "a.zip")
