"""The one table of all models: every number from the result that it should come from, and words where there is none."""

from __future__ import annotations

import io

import made_up_matrix
import pandas as pd
import pytest
from made_up import Writer, made_up_values, recorded, spread
from made_up_matrix import with_matrix
from made_up_regression import with_regression, write_regression
from records import dump_record, load_record
from small import EQUIVARIANCE
from test_reports_comparison import LAYERS
from test_reports_comparison import numbers as equivariance_numbers

from pipeline.drawing.table import Table
from pipeline.params import parse_params
from pipeline.report import model_table

NETWORKS = ["capsules-digits", "vae-digits", "matrix-toys", "cnn-toys"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Of results of every study; of equivariance and data efficiency, of the runs that stages measured."""
    full = Writer(tmp_path_factory.mktemp("full"))
    full.everything()
    made_up_matrix.everything(full)
    # The CNN is better on familiar viewpoints, so its matched errors are not those of its last epochs.
    made_up_matrix.viewed(full, "azimuth", {"capsules": 0.20, "cnn": 0.26}, lead=-0.1)
    write_regression(full)
    values = with_regression(with_matrix(made_up_values()))
    # A study of fewer images, whose name comes first
    few = {"gauss-newton": {"180": {"refit_accuracy_after": spread(0.9)}}}
    full.numbers("optimise", "a-few", {"engine": few, "images": 8})
    values["optimise"]["a-few"] = values["optimise"]["capsules-digits"] | {"images": 8}
    values["equivariance"] = {run: {"run": run, **EQUIVARIANCE} for run in NETWORKS}
    values["data_efficiency"] = {
        run: {"run": run, "shares": [0.01, 0.1, 1.0], "epochs": 4, "replicas": 2} for run in ("vae-digits", "cnn-toys")
    }
    params = parse_params(values)
    path = full.metrics / "evaluate/capsules-digits.json"
    dump_record(path, load_record(path) | {"kmeans": {"t0": spread(0.7), "t0_A0": spread(0.8, 0.02)}})
    path = full.metrics / "train/vae-digits.json"
    dump_record(path, load_record(path) | {"parameters": {}})
    for run in NETWORKS:
        full.numbers("equivariance", run, equivariance_numbers(LAYERS[params.runs[run].variant]))
    for run, how in (("vae-digits", "mu_sigma"), ("cnn-toys", "itself")):
        shares = {"0.01": 0.5, "0.1": 0.25, "1": 0.125}
        content = {
            "share": {share: {how: spread(error, 0.01)} for share, error in shares.items()},
            "images": {"0.01": 12, "0.1": 120, "1": 1200},
        }
        full.numbers("data_efficiency", run, content)
    (found,) = model_table.build(recorded(full.results, params))
    return found


def row(table: Table, run: str) -> dict[str, str]:
    found: dict[str, str] = table.shown.set_index("run").loc[run].to_dict()
    return found


def test_an_unsupervised_model_is_judged_by_the_probe_on_its_first_features(table: Table) -> None:
    shown = row(table, "capsules-digits")
    assert (shown["classified by"], shown["test error"]) == ("linear probe on t0", "5.0 ± 1.2")
    assert (shown["rotated ±180°"], shown["rotated ±180°, probe of upright images"]) == ("59.0 ± 1.2", "68.0 ± 2.0")
    assert (shown["trained on rotated ±180°"], shown["rotated ±180°, optimised"]) == ("53.0", "54.0 ± 1.0 (64 images)")
    assert shown["clusters without labels"] == "30.0 ± 1.0"
    assert shown["novel azimuths"] == shown["FGSM, epsilon 0.1"] == "not measured"
    assert shown["equivariance error"] == "0.20 ± 0.02 (parts, by theory)"
    assert (shown["parameters"], row(table, "vae-digits")["parameters"]) == ("1,315,042", "not measured")


def test_a_classifier_is_judged_by_itself(table: Table) -> None:
    capsules, cnn = row(table, "matrix-toys"), row(table, "cnn-toys")
    assert (capsules["classified by"], capsules["test error"]) == ("itself", "17.0 ± 1.0")
    assert (capsules["novel azimuths"], cnn["novel azimuths"]) == ("20.0 ± 1.0", "26.0 ± 1.0")
    assert (capsules["novel elevations"], cnn["novel elevations"]) == ("19.0 ± 1.0", "24.0 ± 1.0")
    assert capsules["FGSM, epsilon 0.1"] == "45.0 ± 1.4 (1,500 images)"
    assert cnn["BIM, epsilon 0.1"] == "82.0 ± 1.4 (1,500 images)"
    assert [cnn[f"{share} % of images"] for share in (1, 10, 100)] == ["50.0 ± 1.0", "25.0 ± 1.0", "12.5 ± 1.0"]
    assert cnn["rotated ±180°"] == "not measured"
    assert cnn["equivariance error"] == "0.70 ± 0.02 (hidden, fitted map)", "the better of its layers"
    assert cnn["invariance error"] == "1.00 ± 0.02 (hidden)"


def test_the_csv_has_a_row_for_each_model_and_question(table: Table) -> None:
    data = pd.read_csv(io.StringIO(table.to_csv()))
    assert len(data) == len(table.shown) * len(model_table.COLUMNS)
    asked = data.set_index(["run", "measure"])
    error = asked.loc[("matrix-toys", "error_FGSM_0.1_percent")]
    assert (error["value"], error["n"]) == (45, 2)
    assert error["tracking_run"] == "20251102-140509-attack-toys-a1b2c3"
    assert asked.loc[("capsules-digits", "error_percent"), "value"] == pytest.approx(5)
    missing = asked.loc[("capsules-digits", "error_novel_azimuth_percent")]
    assert pd.isna(missing["value"])


def test_sources_are_those_of_every_number(table: Table) -> None:
    sources = {f"{record['stage']}/{record['item']}" for record in table.records}
    assert {"attack/toys", "viewpoint/azimuth", "optimise/capsules-digits", "sweep/vae-digits-180"} <= sources
    assert {"equivariance/cnn-toys", "data_efficiency/vae-digits", "evaluate/vae-digits"} <= sources
    assert "sweep/vae-digits-45" not in sources
