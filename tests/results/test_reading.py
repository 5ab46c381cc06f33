"""Result files: what is not there is None, what is broken is refused by name, settings are those recorded."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import dump_record, load_record
from result_files import ResultFiles

from pipeline.errors import UserError
from pipeline.results.measured import Measured
from pipeline.results.outcome import RECORD
from pipeline.results.provenance import merged_provenance
from pipeline.results.reading import Recorded, ResultError


def test_what_was_not_executed_is_none(files: ResultFiles) -> None:
    assert files.results.numbers("train", "nobody") is None
    assert files.results.table("train", "nobody", []) is None
    assert files.results.examples("evaluate", "nobody", []) is None


def test_numbers_are_found_by_their_keys(files: ResultFiles) -> None:
    files.numbers("train", "a", {"validation": {"bound": {"mean": -3.5, "sd": 0.25, "n": 4}}, "seconds": 2})
    numbers = files.results.numbers("train", "a")
    assert numbers is not None
    assert numbers.measured("validation", "bound") == Measured(-3.5, 0.25, 4)
    assert numbers.measured("validation", "nothing") is None
    assert numbers.measured("seconds", "deeper") is None
    assert numbers.number("seconds") == 2.0
    assert numbers.records[-1]["item"] == "a"


def test_a_difference_and_a_ratio_have_an_sd_where_both_numbers_have_one() -> None:
    single, several, others = Measured(8.0, 0.0, 1), Measured(4.0, 0.3, 3), Measured(8.0, 0.4, 2)
    assert others.minus(several) == Measured(4.0, pytest.approx(0.5), 2)  # type: ignore[arg-type]
    assert others.over(several) == Measured(2.0, pytest.approx((0.4**2 + 0.6**2) ** 0.5 / 4), 2)  # type: ignore[arg-type]
    for pair in ((single, several), (several, single)):
        assert pair[0].minus(pair[1]).sd == pair[0].over(pair[1]).sd == 0.0
    errors = [Measured(mean, 0.3, 1, standard_error=True) for mean in (8.0, 4.0)]
    assert errors[0].minus(errors[1]).sd > 0.4


def test_a_part_of_a_result_is_read_like_one_and_has_the_provenance_of_the_whole(files: ResultFiles) -> None:
    path = files.numbers("ablation", "a", {"condition": {"first": {"seconds": 2}, "second": 3}}, settings=SETTINGS)
    numbers = files.results.numbers("ablation", "a")
    assert numbers is not None
    part = numbers.part("condition", "first")
    assert part.number("seconds") == 2.0
    assert part.records == numbers.records
    assert part.settings == SETTINGS
    for name in ("second", "third"):
        with pytest.raises(ResultError, match=rf"should hold numbers by name in condition\.{name}") as error:
            numbers.part("condition", name)
        assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff\xfe", b"[1]", b'{"validation": NaN}', b'{"bound": Infinity}', b'"text"'),
        *(b"[" * 100_000, b'{"a": ' * 100_000 + b"1" + b"}" * 100_000),
    ],
    ids=lambda content: content[:20].decode(errors="replace"),
)
def test_corrupt_numbers_are_refused(files: ResultFiles, content: bytes) -> None:
    path = files.numbers("train", "a", {})
    path.write_bytes(content)
    with pytest.raises(ResultError, match="corrupt") as error:
        files.results.numbers("train", "a")
    assert str(path) in str(error.value)
    assert isinstance(error.value, UserError)


@pytest.mark.parametrize("provenance", [None, [], {}, ["text"]])
def test_numbers_without_provenance_are_refused(files: ResultFiles, provenance: object) -> None:
    files.text("train", "a", json.dumps({RECORD: [{"provenance": provenance}]}))
    numbers = files.results.numbers("train", "a")
    assert numbers is not None
    with pytest.raises(ResultError, match="provenance"):
        _ = numbers.records


@pytest.mark.parametrize("value", [0.9, "text", {"mean": 0.9}, {"mean": "x", "sd": 0, "n": 1}, [1, 2, 3]])
def test_a_measurement_has_mean_sd_and_n(files: ResultFiles, value: object) -> None:
    files.numbers("train", "a", {"accuracy": value})
    numbers = files.results.numbers("train", "a")
    assert numbers is not None
    with pytest.raises(ResultError, match="accuracy"):
        numbers.measured("accuracy")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'a,b\n"1,2\n', b"a,b\n1,2,3\n1,2,3,4\n"])
def test_a_corrupt_table_is_refused(files: ResultFiles, content: bytes) -> None:
    path = files.table("train", "a", pd.DataFrame({"a": [1]}))
    path.write_bytes(content)
    with pytest.raises(ResultError, match=str(path)):
        files.results.table("train", "a", ["a", "b"])


def test_a_table_names_the_columns_it_lacks(files: ResultFiles) -> None:
    files.table("train", "a", pd.DataFrame({"replica": [0]}))
    with pytest.raises(ResultError, match="epoch, train_bound"):
        files.results.table("train", "a", ["replica", "epoch", "train_bound"])
    files.table("train", "a", pd.DataFrame({"replica": []}))
    with pytest.raises(ResultError, match=r"has no rows\. .*`dvc repro -f -s [a-z]+@[a-z-]+`"):
        files.results.table("train", "a", ["replica"])


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


def lying(path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00\x76\x00" + header)


@pytest.mark.parametrize("damage", [truncated, flipped, emptied, pickled, text, lying])
def test_corrupt_examples_are_refused_and_pickles_never_opened(files: ResultFiles, damage: object) -> None:
    path = files.examples("evaluate", "a", images=np.arange(4096.0).reshape(4, 32, 32))
    damage(path)  # type: ignore[operator]
    with pytest.raises(ResultError, match=str(path)):
        files.results.examples("evaluate", "a", ["images"])


def test_examples_name_the_arrays_they_lack(files: ResultFiles) -> None:
    files.examples("evaluate", "a", images=np.zeros((1, 2, 2)))
    with pytest.raises(ResultError, match="templates"):
        files.results.examples("evaluate", "a", ["images", "templates"])
    arrays = files.results.examples("evaluate", "a", ["images"])
    assert arrays is not None
    assert arrays["images"].shape == (1, 2, 2)


SETTINGS = {
    "evaluate": {"angles": [0, 45]},
    "runs": {"capsules": {"dataset": "digits", "training": {"epochs": 25}}},
    "datasets": {"digits": {"canvas": 28}},
}


def test_items_that_were_executed_come_in_natural_order(files: ResultFiles) -> None:
    for item in ("capsules-180", "capsules-45", "capsules-0", "capsules-7.5", "b"):
        files.numbers("sweep", item, {"of": item})
    files.table("sweep", "table-alone", pd.DataFrame({"a": [1]}))
    files.numbers("train", "capsules", {})
    items = ["b", "capsules-0", "capsules-7.5", "capsules-45", "capsules-180"]
    assert files.results.items("sweep") == items
    executed = list(files.results.executed("sweep"))
    assert [item for item, _ in executed] == items
    assert [numbers.at("of") for _, numbers in executed] == items
    assert files.results.items("attack") == list(files.results.executed("attack")) == []


def test_a_corrupt_item_is_refused_among_those_executed(files: ResultFiles) -> None:
    files.numbers("train", "a", {})
    path = files.text("train", "b", "{")
    with pytest.raises(ResultError, match="corrupt") as error:
        list(files.results.executed("train"))
    assert str(path) in str(error.value)


def test_settings_are_those_of_the_stages_own_record(files: ResultFiles) -> None:
    path = files.numbers("evaluate", "capsules", {}, settings=SETTINGS)
    content = load_record(path)
    content["provenance"].insert(0, {"stage": "train", "settings": {"evaluate": {"angles": [90]}}})
    dump_record(path, content)
    numbers = files.results.numbers("evaluate", "capsules")
    assert numbers is not None
    assert numbers.settings == SETTINGS
    assert numbers.settings.evaluate.angles == [0, 45]
    assert numbers.settings.runs["capsules"].training.epochs == 25
    assert numbers.run("capsules").training.epochs == 25
    assert numbers.dataset_of("capsules").canvas == 28


def test_a_setting_that_was_not_recorded_is_named(files: ResultFiles) -> None:
    path = files.numbers("evaluate", "capsules", {}, settings=SETTINGS)
    numbers = files.results.numbers("evaluate", "capsules")
    assert numbers is not None
    with pytest.raises(ResultError, match=r"runs\.vae") as error:
        numbers.run("vae")
    assert str(path) in str(error.value)
    other = files.numbers("evaluate", "other", {}, settings=SETTINGS | {"datasets": {}})
    numbers = files.results.numbers("evaluate", "other")
    assert numbers is not None
    with pytest.raises(ResultError, match=r"datasets\.digits") as error:
        numbers.dataset_of("capsules")
    assert str(other) in str(error.value)


@pytest.mark.parametrize("provenance", [{}, {"settings": None}, {"settings": ["runs"]}])
def test_a_result_without_settings_is_refused(files: ResultFiles, provenance: dict[str, object]) -> None:
    path = files.numbers("train", "a", {}, **provenance)
    numbers = files.results.numbers("train", "a")
    assert numbers is not None
    with pytest.raises(ResultError, match="a provenance without settings") as error:
        _ = numbers.settings
    assert str(path) in str(error.value)


def test_runs_that_a_study_trained_are_read_by_name(files: ResultFiles) -> None:
    files.numbers("sweep", "capsules-45", {}, trained={"run": {"augmentation": {"rotation": 45.0}}})
    numbers = files.results.numbers("sweep", "capsules-45")
    assert numbers is not None
    assert numbers.trained.run.augmentation.rotation == 45.0
    assert numbers.trained["run"]["augmentation"]["rotation"] == 45.0


@pytest.mark.parametrize("provenance", [{}, {"trained": {}}, {"trained": None}])
def test_a_study_that_trained_nothing_says_so(files: ResultFiles, provenance: dict[str, object]) -> None:
    files.numbers("evaluate", "a", {}, **provenance)
    numbers = files.results.numbers("evaluate", "a")
    assert numbers is not None
    assert numbers.trained == {}


def test_recorded_values_are_read_by_key_or_attribute() -> None:
    values = Recorded({"model": {"objects": 16, "types": [2, 4], "items": 3}, "name": None})
    assert values == {"model": {"objects": 16, "types": [2, 4], "items": 3}, "name": None}
    assert values.model.objects == values["model"].objects == values["model"]["objects"] == 16
    assert values.model.types == [2, 4]
    assert values.name is None
    assert values.model["items"] == 3, "a setting with the name of a dict's method is read by its key"
    assert values.get("absent") is None
    with pytest.raises(AttributeError, match="no setting 'parts'"):
        _ = values.model.parts
    assert not hasattr(values, "parts")


def test_provenance_of_several_items_is_merged() -> None:
    common = {"device": "CPU", "params_hash": "abc"}
    first = common | {"stage": "train", "item": "a", "seconds": 60.0, "epochs": 40.0, "commit": "c1"}
    first |= {"dirty": False, "tracking_run": "r1"}
    second = common | {"stage": "evaluate", "item": "a", "seconds": 5.5, "epochs": None, "commit": "c2"}
    second |= {"dirty": True, "tracking_run": "r2"}
    merged = merged_provenance([first, second, first])
    assert merged["seconds"] == 65.5
    assert merged["epochs"] == 40.0
    assert merged["commit"] == "c1, c2-dirty"
    assert merged["items"] == ["train/a", "evaluate/a"]
    assert merged["tracking_runs"] == ["r1", "r2"]
    assert merged["device"] == "CPU"
    assert merged_provenance([])["commit"] is None
