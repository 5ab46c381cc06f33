"""Result files: what is not there is None, what is broken is refused by name, settings are those recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from records import ResultFiles, dump_record, load_record

from pipeline.results.measured import Measured
from pipeline.results.provenance import merged_provenance
from pipeline.results.reading import NotMeasuredError, ResultError


def test_a_difference_and_a_ratio_have_an_sd_where_both_numbers_have_one() -> None:
    single, several, others = Measured(8.0, 0.0, 1), Measured(4.0, 0.3, 3), Measured(8.0, 0.4, 2)
    assert others.minus(several) == Measured(4.0, pytest.approx(0.5), 2)  # type: ignore[arg-type]
    assert others.over(several) == Measured(2.0, pytest.approx((0.4**2 + 0.6**2) ** 0.5 / 4), 2)  # type: ignore[arg-type]
    for pair in ((single, several), (several, single)):
        assert pair[0].minus(pair[1]).sd == pair[0].over(pair[1]).sd == 0.0
    errors = [Measured(mean, 0.3, 1, standard_error=True) for mean in (8.0, 4.0)]
    assert errors[0].minus(errors[1]).sd > 0.4


def test_replicas_lower_the_noise_of_a_mean() -> None:
    """Standard errors of 0.6 / 3 = 0.2: twice that of the difference is 0.57."""
    low, high = Measured(0.2, 0.6, 9), Measured(0.8, 0.6, 9)
    assert high.clearly_above(low)
    assert not replace(high, mean=0.75).clearly_above(low)
    assert low.variance_of_share(100) == pytest.approx(0.2 * 0.8 / 100 + 0.2**2)


SETTINGS = {
    "evaluate": {"angles": [0, 45]},
    "runs": {"capsules": {"dataset": "digits", "training": {"epochs": 25}}},
    "datasets": {"digits": {"canvas": 28}},
}


def test_items_that_were_executed_come_in_natural_order(files: ResultFiles) -> None:
    for item in ("capsules-180", "capsules-45", "capsules-0", "capsules-7.5", "b"):
        files.numbers("sweep", item, {"of": item})
    files.table("sweep", "table-alone", pd.DataFrame({"a": [1]}))
    executed = [(item, numbers.at("of")) for item, numbers in files.results.executed("sweep")]
    items = ["b", "capsules-0", "capsules-7.5", "capsules-45", "capsules-180"]
    assert executed == list(zip(items, items, strict=True))
    assert list(files.results.executed("attack")) == []


def test_what_is_missing_is_named_by_its_item(files: ResultFiles) -> None:
    files.numbers("evaluate", "capsules", {"value": 1.0})
    _, numbers = files.results.answering("evaluate", "capsules")
    with pytest.raises(NotMeasuredError, match=r"^evaluate/capsules has no test\.accuracy$"):
        numbers.needed("test", "accuracy")
    with pytest.raises(NotMeasuredError, match=r"^evaluate/vae has no result$"):
        files.results.answering("evaluate", "vae")


def test_settings_are_those_of_the_stages_own_record(files: ResultFiles) -> None:
    path = files.numbers("evaluate", "capsules", {}, settings=SETTINGS)
    content = load_record(path)
    content["provenance"].insert(0, {"stage": "train", "settings": {"evaluate": {"angles": [90]}}})
    dump_record(path, content)
    numbers = files.results.numbers("evaluate", "capsules")
    assert numbers is not None
    assert numbers.settings == SETTINGS
    assert numbers.settings.evaluate.angles == [0, 45]
    assert numbers.run("capsules").training.epochs == 25
    assert numbers.dataset_of("capsules").canvas == 28
    with pytest.raises(ResultError, match=rf"{path} .*runs\.vae"):
        numbers.run("vae")


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


@pytest.mark.parametrize("damaged", [True, False])
def test_corrupt_and_incomplete_examples_are_refused(files: ResultFiles, damaged: bool) -> None:
    path = files.examples("evaluate", "a", images=np.arange(4096.0).reshape(4, 32, 32))
    if damaged:
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ResultError, match=str(path)):
        files.results.examples("evaluate", "a", ["images", "templates"])


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        *(("json", text) for text in ("{", "[1]", '{"bound": NaN}')),
        *(("csv", text) for text in ('a,b\n"1,2\n', "a\n1\n", "a,b\n")),
    ],
)
def test_corrupt_numbers_and_tables_are_refused(files: ResultFiles, ending: str, content: str) -> None:
    """A table also where it lacks a column or rows."""
    path = files.numbers("train", "a", {}).with_suffix(f".{ending}")
    path.write_text(content)
    with pytest.raises(ResultError, match=str(path)):
        _ = list(files.results.executed("train")), files.results.table("train", "a", ["a", "b"])
