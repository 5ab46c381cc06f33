"""Result files: what is not there is None, what is broken is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import Writer, spread

from pipeline.errors import UserError
from pipeline.results.reading import Measured, ResultError


def test_what_was_not_executed_is_none(writer: Writer) -> None:
    assert writer.results.numbers("train", "nobody") is None
    assert writer.results.table("train", "nobody", []) is None
    assert writer.results.examples("evaluate", "nobody", []) is None


def test_numbers_are_found_by_their_keys(writer: Writer) -> None:
    writer.numbers("train", "a", {"validation": {"bound": spread(-3.5, 0.25, 4)}, "seconds": 2})
    numbers = writer.results.numbers("train", "a")
    assert numbers is not None
    assert numbers.measured("validation", "bound") == Measured(-3.5, 0.25, 4)
    assert numbers.measured("validation", "nothing") is None
    assert numbers.measured("seconds", "deeper") is None
    assert numbers.number("seconds") == 2.0
    assert numbers.records[-1]["item"] == "a"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[1]", b'{"validation": NaN}', b'{"bound": Infinity}', b'"text"']
)
def test_corrupt_numbers_are_refused(writer: Writer, content: bytes) -> None:
    path = writer.numbers("train", "a", {})
    path.write_bytes(content)
    with pytest.raises(ResultError, match="corrupt") as error:
        writer.results.numbers("train", "a")
    assert str(path) in str(error.value)
    assert isinstance(error.value, UserError)


@pytest.mark.parametrize("provenance", [None, [], {}, ["text"]])
def test_numbers_without_provenance_are_refused(writer: Writer, provenance: object) -> None:
    path = writer.metrics / "train" / "a.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"provenance": provenance}), encoding="utf-8")
    numbers = writer.results.numbers("train", "a")
    assert numbers is not None
    with pytest.raises(ResultError, match="provenance"):
        _ = numbers.records


@pytest.mark.parametrize("value", [0.9, "text", {"mean": 0.9}, {"mean": "x", "sd": 0, "n": 1}, [1, 2, 3]])
def test_a_measurement_has_mean_sd_and_n(writer: Writer, value: object) -> None:
    writer.numbers("train", "a", {"accuracy": value})
    numbers = writer.results.numbers("train", "a")
    assert numbers is not None
    with pytest.raises(ResultError, match="accuracy"):
        numbers.measured("accuracy")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'a,b\n"1,2\n', b"a,b\n1,2,3\n1,2,3,4\n"])
def test_a_corrupt_table_is_refused(writer: Writer, content: bytes) -> None:
    path = writer.table("train", "a", pd.DataFrame({"a": [1]}))
    path.write_bytes(content)
    with pytest.raises(ResultError, match=str(path)):
        writer.results.table("train", "a", ["a", "b"])


def test_a_table_names_the_columns_it_lacks(writer: Writer) -> None:
    writer.table("train", "a", pd.DataFrame({"replica": [0]}))
    with pytest.raises(ResultError, match="epoch, train_bound"):
        writer.results.table("train", "a", ["replica", "epoch", "train_bound"])
    writer.table("train", "a", pd.DataFrame({"replica": []}))
    with pytest.raises(ResultError, match="no rows"):
        writer.results.table("train", "a", ["replica"])


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def pickled(path: Path) -> None:
    np.savez(path, images=np.array([{"a": 1}], dtype=object))


def text(path: Path) -> None:
    path.write_text("not an archive", encoding="utf-8")


@pytest.mark.parametrize("damage", [truncated, flipped, emptied, pickled, text])
def test_corrupt_examples_are_refused_and_pickles_never_opened(writer: Writer, damage: object) -> None:
    path = writer.examples("evaluate", "a", images=np.arange(4096.0).reshape(4, 32, 32))
    damage(path)  # type: ignore[operator]
    with pytest.raises(ResultError, match=str(path)):
        writer.results.examples("evaluate", "a", ["images"])


def test_examples_name_the_arrays_they_lack(writer: Writer) -> None:
    writer.examples("evaluate", "a", images=np.zeros((1, 2, 2)))
    with pytest.raises(ResultError, match="templates"):
        writer.results.examples("evaluate", "a", ["images", "templates"])
    arrays = writer.results.examples("evaluate", "a", ["images"])
    assert arrays is not None
    assert arrays["images"].shape == (1, 2, 2)
