"""Which results answer the claims of document 000: by rank of their own settings, then by name."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from made_up import Writer
from recorded import recorded
from records import dump_record

from pipeline.params import parse_params
from pipeline.systems.generative.report.claims import MEASURES
from pipeline.systems.generative.report.runs import beyond_paper, candidates, setting_of, studies, swept


def test_a_run_beyond_the_paper_answers_no_claim_that_another_can(full: Writer, values: dict[str, Any]) -> None:
    """Not even one on the paper's data: it is another model."""
    values["datasets"]["mnist"] = values["datasets"]["digits"] | {"source": "mnist"}
    values["sources"] = [*values["sources"], "mnist"]
    run = values["runs"]["capsules-digits"]
    slots = run | {"model": run["model"] | {"slots": "any", "seeding": None}, "dataset": "mnist"}
    values["runs"]["a-capsules-slots"] = slots
    values["sweep"] = values["sweep"] | {"runs": [*values["sweep"]["runs"], "a-capsules-slots"]}
    full.evaluate("a-capsules-slots", ["t0"])
    full.sweep("a-capsules-slots", {"t0": {0: 0.93, 45: 0.74, 180: 0.47}})
    results = recorded(full.results, parse_params(values))
    names = ["capsules-digits", "a-capsules-slots"]
    found = candidates(results, "evaluate", "generative")
    assert [name for name, _ in found] == [sweep.run for sweep in swept(results, "generative")] == names
    remarks = {name: beyond_paper(setting_of(numbers, name)) for name, numbers in found}
    assert remarks == {"capsules-digits": [], "a-capsules-slots": ["parts in any slot (paper: their own)"]}


def test_candidates_are_ranked_by_their_settings_and_then_by_name(full: Writer, values: dict[str, Any]) -> None:
    """Objects from a mixture first, then those closest to the paper's settings, then more seeds, then more epochs; the
    order of the parameters says nothing.
    """
    run = values["runs"]["capsules-digits"]
    epochs = run["training"]["epochs"]
    runs = {
        "z-longer": run | {"training": run["training"] | {"epochs": epochs + 1}},
        "y-seeds": run | {"replicas": 3},
        "x-small": run | {"replicas": 9, "model": run["model"] | {"objects": 8}},
        "w-same": run,
        "a-images": run | {"replicas": 9, "model": run["model"] | {"seeding": None}},
    }
    values["runs"] |= runs
    for name in runs:
        full.evaluate(name, ["t0"])
    found = candidates(recorded(full.results, parse_params(values)), "evaluate", "generative")
    assert [name for name, _ in found] == ["y-seeds", "z-longer", "capsules-digits", "w-same", "x-small", "a-images"]


def test_studies_are_ranked_by_what_they_measured(full: Writer, values: dict[str, Any]) -> None:
    study = values["optimise"]["capsules-digits"]
    values["optimise"] |= {"few": study | {"images": 8}, "many": study | {"images": 128}}
    full.optimise("few")
    full.optimise("many")
    found = studies(recorded(full.results, parse_params(values)), "optimise")
    assert [each.images for each, _ in found] == [128, 64, 8]


def test_a_result_is_judged_by_its_own_settings(full: Writer, values: dict[str, Any]) -> None:
    """The run was evaluated with 8 objects and trained anew with 16 since: that training is not behind its numbers."""
    values["runs"]["capsules-digits"]["model"]["objects"] = 8
    evaluated = recorded(full.results, parse_params(values)).numbers("evaluate", "capsules-digits")
    assert evaluated is not None
    values["runs"]["capsules-digits"]["model"]["objects"] = 16
    recorded(full.results, parse_params(values))
    dump_record(evaluated.path, evaluated.values)
    found = {name: MEASURES[name](full.results) for name in ("000.t1.t0.0", "000.params", "000.t1.vae.0")}
    accuracy, size, vae = found.values()
    assert accuracy is not None
    assert size is not None
    assert vae is not None
    assert "objects 8 (paper: 16)" in accuracy.remarks
    assert "objects 8 (paper: 16)" not in size.remarks
    assert [each["stage"] for each in accuracy.records] == ["evaluate"]
    assert [each["stage"] for each in vae.records] == ["train", "evaluate"]


def test_of_several_vaes_the_widest_answers_and_the_row_names_its_sizes(full: Writer, values: dict[str, Any]) -> None:
    shutil.copy(full.metrics / "evaluate" / "vae-digits.json", full.metrics / "evaluate" / "vae-wide.json")
    wide = values["runs"]["vae-digits"]
    wide = wide | {"model": wide["model"] | {"latent": 64, "pixels": "bernoulli"}}
    recorded(full.results, parse_params(values | {"runs": values["runs"] | {"vae-wide": wide}}))
    finding = MEASURES["000.t1.vae.0"](full.results)
    assert finding is not None
    (note,) = [note for note in finding.notes if "latent" in note]
    assert note == "64 latent dimensions, 128 hidden units, bernoulli pixels (the paper gives none of these)"


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"affinities": "uniform"}, "rho uniform (paper: learned)"),
        (
            {"inactive_pose": "initial", "inactive_pose_sd": 0.35},
            "absent parts around their initial pose, sd 0.35 (paper: around 0)",
        ),
        (
            {"early_coupling": 0.2, "early_epochs": 3, "ramp_epochs": 5},
            "objects' gradient into the parts times 0.2 for 3 epochs, whole after 5 more (paper: whole)",
        ),
        ({"seeding_epoch": 1, "seeding": None}, "M set from part poses at epoch 1 (paper: learned from the start)"),
        (
            {"seeding_epoch": 1, "seeding": {"images": 900, "iterations": 5, "teaching_epochs": 2}},
            "objects set from a mixture of arrangements of parts in 900 images at epoch 1 (paper: learned from the "
            "start), and their encoder taught by it for 2 epochs",
        ),
        ({"hidden": 64, "pixel_sd": 0.1}, "pixel sd 0.1 / 0.2, hidden 64 / 128 (ours / the paper's)"),
    ],
)
def test_every_departure_of_the_capsule_model_is_named(
    full: Writer, values: dict[str, Any], changes: dict[str, Any], remark: str
) -> None:
    run = values["runs"]["capsules-digits"]
    run["training"] = run["training"] | {"epochs": 2}
    before = departures_in(full, values)
    run["model"] = run["model"] | changes
    after = departures_in(full, values)
    for claim in before:
        assert [each for each in after[claim] if each not in before[claim]] == [remark], claim


def departures_in(writer: Writer, values: dict[str, Any]) -> dict[str, list[str]]:
    """Remarks of rows of the capsule model."""
    results = recorded(writer.results, parse_params(values))
    found = {
        name: MEASURES[name](results) for name in ("000.t1.t0.45", "000.params", "000.fig3", "000.fig5", "000.appD")
    }
    return {name: finding.remarks for name, finding in found.items() if finding}


def test_a_model_as_the_papers_has_no_departures(full: Writer, values: dict[str, Any]) -> None:
    remarks = departures_in(full, values)
    assert len(remarks) == 5
    assert remarks["000.params"] == ["not the paper's data (MNIST)"]


def test_how_many_images_are_behind_a_verdict(full: Writer, values: dict[str, Any]) -> None:
    results = recorded(full.results, parse_params(values))
    images = {"000.fig3": 64, "000.fig5": 200, "000.fig6": 200}
    for claim, count in images.items():
        finding = MEASURES[claim](results)
        assert finding is not None
        assert f"on {count} test images" in " ".join(finding.notes)
    accuracy = MEASURES["000.t1.t0.45"](results)
    assert accuracy is not None
    assert "tested on 360 images (paper: 10,000)" in accuracy.remarks


@pytest.mark.parametrize(("patience", "stages"), [(60, ["train", "evaluate"]), (5, ["evaluate"])])
def test_a_patience_that_never_ends_a_training_does_not_matter(
    full: Writer, values: dict[str, Any], patience: int, stages: list[str]
) -> None:
    run = values["runs"]["capsules-digits"]
    run["training"] = run["training"] | {"epochs": 40, "patience": patience}
    evaluated = recorded(full.results, parse_params(values)).numbers("evaluate", "capsules-digits")
    assert evaluated is not None
    run["training"] = run["training"] | {"patience": 40}
    recorded(full.results, parse_params(values))
    dump_record(evaluated.path, evaluated.values)
    finding = MEASURES["000.t1.t0.0"](full.results)
    assert finding is not None
    assert [each["stage"] for each in finding.records] == stages
