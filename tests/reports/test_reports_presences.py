"""Silent presences are found, informative ones are not, and results of older code are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up import Writer, presences, spread
from numpy.typing import NDArray
from recorded import recorded
from records import dump_record, load_record

from pipeline import report
from pipeline.page.scorecard import build_scorecard
from pipeline.params import Params, parse_params
from pipeline.probes.probes import fit_probe
from pipeline.results.claims import load_claims
from pipeline.results.reading import Numbers, ResultError
from pipeline.systems.generative.model.information import joint_information
from pipeline.systems.generative.model.presences import logistic_noise
from pipeline.systems.generative.report.presences import silence
from pipeline.systems.generative.report.runs import chance_of

OBJECTS, CLASSES, PRIOR = 16, 10, -1.2
COUNTS = {"train": 800, "validation": 200, "test": 800}
T0 = "000.t1.t0.0"


def encoded(logit_sd: float, part: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Log odds with one pattern per class, some noise, and the given sd over images, at the prior in the mean; their
    classes.
    """
    random = np.random.default_rng(part)
    labels = random.integers(0, CLASSES, list(COUNTS.values())[part])
    patterns = np.random.default_rng(9).normal(size=(CLASSES, OBJECTS))
    values = patterns[labels] + 0.5 * random.normal(size=(len(labels), OBJECTS))
    return (PRIOR + logit_sd * values / values.std(0)).astype(np.float32), labels


def measured(logit_sd: float) -> dict[str, float]:
    """Information, and the accuracies (percent) of the probes on samples and on log odds."""
    log_odds = [encoded(logit_sd, part) for part in range(3)]
    generator = torch.Generator().manual_seed(0)
    noise = [logistic_noise(values.shape, generator, "cpu") for values, _ in log_odds]
    sampled = [
        ((torch.from_numpy(values) + each).sigmoid().numpy(), labels)
        for (values, labels), each in zip(log_odds, noise, strict=True)
    ]

    def accuracy(parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]]) -> float:
        train, validation, test = parts
        return 100 * fit_probe(train, validation, [0.1]).accuracy(*test)

    information = joint_information(torch.from_numpy(log_odds[2][0]).double(), noise[2].double())
    return {"information": information.item(), "sampled": accuracy(sampled), "log_odds": accuracy(log_odds)}


@pytest.mark.parametrize("logit_sd", [0.01, 0.05, 0.2])
def test_nearly_constant_presences_are_silent_although_their_log_odds_are_read(logit_sd: float) -> None:
    found = measured(logit_sd)
    assert found["log_odds"] > 80
    assert silence(10, **found)
    assert silence(10, sampled=found["sampled"], log_odds=found["log_odds"]), "by the probes alone"
    assert (found["information"] < 0.1) == (logit_sd < 0.2)


@pytest.mark.parametrize("logit_sd", [1.5, 4.0])
def test_presences_that_depend_on_the_image_are_not(logit_sd: float) -> None:
    found = measured(logit_sd)
    assert found["information"] > 1
    assert found["sampled"] > 50
    assert silence(10, **found) is None


def test_nothing_is_said_without_measurements_or_where_log_odds_are_not_read_either() -> None:
    assert silence(10) is None
    assert silence(10, sampled=12.0) is None
    assert silence(10, log_odds=85.0) is None
    assert silence(10, sampled=12.0, log_odds=20.0) is None


def test_the_number_of_classes_is_that_of_the_images() -> None:
    def settings(source: str, **own: Any) -> Numbers:
        recorded = {"runs": {"a": {"dataset": "d"}}, "datasets": {"d": {"source": source}}, "own_images": own}
        return Numbers(Path("a.json"), {"provenance": [{"settings": recorded}]})

    assert chance_of(settings("mnist"), "a") == 10
    assert chance_of(settings("mine", mine={"classes": ["cat", "dog"]}), "a") == 50
    with pytest.raises(ResultError, match="without the classes of mine"):
        chance_of(settings("mine"), "a")


def test_chance_follows_from_the_number_of_classes() -> None:
    assert silence(10, sampled=52.0, log_odds=85.0) is None
    assert silence(2, sampled=52.0, log_odds=85.0), "a guess is right half the time"


def notes(writer: Writer, params: Params, claim: str = T0) -> list[str]:
    rows = {row["id"]: row for row in build_scorecard(load_claims(), recorded(writer.results, params))}
    return rows[claim]["notes"]


def silent(writer: Writer) -> None:
    path = writer.metrics / "evaluate" / "capsules-digits.json"
    record = load_record(path)
    record["test"] |= presences(information=0.004)
    record["probe"]["t0_sampled"]["refit"]["rotated_0"] = spread(0.11)
    dump_record(path, record)


def test_the_rows_of_t0_name_probe_and_information(full: Writer, params: Params) -> None:
    expected = "probe on samples 91.0 % (standardised, like the log odds), I(t0; x) 2.10 nats"
    assert expected in notes(full, params)
    assert expected in notes(full, params, "000.t1.t0.180")
    assert expected in notes(full, params, "000.freeform.acc")
    assert not any("I(t0; x)" in note for note in notes(full, params, "000.t1.vae.0"))


def test_a_silent_run_says_so_in_its_rows(full: Writer, params: Params) -> None:
    assert not any("carry next to no information" in note for note in notes(full, params))
    silent(full)
    for claim in (T0, "000.freeform.acc"):
        found = notes(full, params, claim)
        assert "presences carry next to no information: 0.00 nats (to tell 10 classes apart takes 2.3)" in found
        assert "probe on samples 11.0 % (standardised, like the log odds), I(t0; x) 0.00 nats" in found


def test_results_of_older_code_say_nothing(full: Writer, params: Params) -> None:
    full.evaluate("capsules-digits", ["t0", "t0_A0", "children"])
    assert not any("presences" in note or "samples" in note for note in notes(full, params))
    tables = {table.name for table in report.build(recorded(full.results, params))}
    assert "presences" not in tables
    assert "table1-capsules-digits" in tables


def test_the_table_has_both_probes_beside_the_information(full: Writer, params: Params) -> None:
    def table() -> dict[str, str]:
        tables = list(report.build(recorded(full.results, params)))
        names = [table.name for table in tables]
        assert names.index("presences") == max(i for i, name in enumerate(names) if name.startswith("table1-")) + 1
        (row,) = tables[names.index("presences")].shown.to_dict("records")
        return {str(key): value for key, value in row.items()}

    found = table()
    assert (found["run"], found["t0"]) == ("capsules-digits", "informative")
    assert found["probe: sample (%)"] == "91.0 ± 1.2"
    assert found["probe: log odds (%)"] == "95.0 ± 1.2"
    assert found["I(t0; x)"] == "2.10 ± 0.03"
    assert found["routing entropy"] == "0.62 ± 0.02"
    silent(full)
    assert table()["t0"] == "silent"


def test_an_ablation_of_presences_has_a_row_for_each_condition(full: Writer, values: dict[str, Any]) -> None:
    conditions = {"unchanged": {}, "image-seeds": {"seeding": None, "pixel_sd": 0.1}}
    study = {"run": "capsules-digits", "epochs": 8, "replicas": 2, "conditions": conditions}
    changed = parse_params(values | {"presence_ablation": {"digits": study}})

    def table() -> list[dict[Any, Any]]:
        tables = list(report.build(recorded(full.results, changed)))
        found = [table.shown.to_dict("records") for table in tables if table.name == "presence-ablation"]
        return found[0] if found else []

    assert table() == []
    probes = {"t0_sampled": 0.6, "t0": 0.9, "t0_A0": 0.95}
    measured = {name: spread(share) for name, share in probes.items()} | presences()
    silent = measured | {"t0_sampled": spread(0.11), "presence_information": spread(0.0)}
    full.numbers("presence_ablation", "digits", {"condition": {"unchanged": measured, "image-seeds": silent}})
    rows = table()
    assert [(row["study"], row["run"], row["condition"], row["changed"]) for row in rows] == [
        ("digits", "capsules-digits", "unchanged", "nothing"),
        ("digits", "capsules-digits", "image-seeds", "seeding none, pixel sd 0.1"),
    ]
    assert [row["probe: sample (%)"] for row in rows] == ["60.0 ± 1.0", "11.0 ± 1.0"]
    assert [row["I(t0; x)"] for row in rows] == ["2.10 ± 0.03", "0.00 ± 0.01"]
    assert [row["pixel error"] for row in rows] == ["", ""], "not measured"
