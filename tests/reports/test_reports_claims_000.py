"""What is said of the settings of results that answer the claims of document 000."""

from __future__ import annotations

from typing import Any

import pytest
from made_up import Writer, with_evidence
from recorded import recorded
from records import dump_record

from pipeline.params import parse_params
from pipeline.report import measures


def test_a_result_is_judged_by_its_own_settings(full: Writer, values: dict[str, Any]) -> None:
    """The run was evaluated with 8 objects and trained anew with 16 since: that training is not behind its numbers."""
    values["runs"]["capsules-digits"]["model"]["objects"] = 8
    evaluated = recorded(full.results, parse_params(values)).numbers("evaluate", "capsules-digits")
    assert evaluated is not None
    values["runs"]["capsules-digits"]["model"]["objects"] = 16
    results = recorded(full.results, parse_params(values))
    dump_record(evaluated.path, evaluated.values)
    found = {name: measures()[name](results) for name in ("000.t1.t0.0", "000.params", "000.t1.vae.0")}
    accuracy, size, vae = found.values()
    assert accuracy is not None
    assert size is not None
    assert vae is not None
    assert "objects 8 / 16 (ours / the paper's)" in accuracy.remarks
    assert not any("objects 8" in words for words in size.remarks)
    assert [each["stage"] for each in accuracy.records] == ["evaluate"]
    assert [each["stage"] for each in vae.records] == ["train", "evaluate"]


@pytest.mark.parametrize(
    ("changes", "remarks"),
    [
        ({"affinities": "uniform"}, ["rho uniform (paper: learned)"]),
        (
            {"inactive_pose": "initial", "inactive_pose_sd": 0.35},
            ["absent parts around their initial pose, sd 0.35 (paper: around 0)"],
        ),
        (
            {"early_coupling": 0.2, "early_epochs": 3, "ramp_epochs": 5},
            ["objects' gradient into the parts times 0.2 for 3 epochs, whole after 5 more (paper: whole)"],
        ),
        ({"seeding_epoch": 1}, ["objects set from the parts at epoch 1 (paper: learned from the start)"]),
        (
            {"seeding_epoch": 1, "seeding": {"images": 900, "iterations": 5, "teaching_epochs": 2}},
            [
                "objects set from the parts at epoch 1 (paper: learned from the start)",
                "objects set by a mixture of arrangements of parts in 900 images, which teaches their encoder "
                "(epochs: 2)",
            ],
        ),
        ({"seeding_epoch": 2, "seeding": {"images": 900, "iterations": 5, "teaching_epochs": 0}}, []),
        ({"slots": "any"}, ["parts in any slot (paper: their own)"]),
        ({"hidden": 64, "pixel_sd": 0.1}, ["pixel sd 0.1 / 0.2, hidden 64 / 128 (ours / the paper's)"]),
    ],
)
def test_every_departure_of_the_capsule_model_is_named(
    full: Writer, values: dict[str, Any], changes: dict[str, Any], remarks: list[str]
) -> None:
    run = values["runs"]["capsules-digits"]
    run["training"] = run["training"] | {"epochs": 2}
    values = with_evidence(values | {"optimise": {}}, "generative", optimise=None)  # of which slots must be own
    before = departures_in(full, values)
    run["model"] = run["model"] | changes
    after = departures_in(full, values)
    for claim in before:
        assert [each for each in after[claim] if each not in before[claim]] == remarks, claim


def departures_in(writer: Writer, values: dict[str, Any]) -> dict[str, list[str]]:
    """Remarks of rows of the capsule model."""
    results = recorded(writer.results, parse_params(values))
    found = {
        name: measures()[name](results) for name in ("000.t1.t0.45", "000.params", "000.fig5", "000.fig6", "000.appD")
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
        finding = measures()[claim](results)
        assert finding is not None
        assert f"on {count} test images" in " ".join(finding.notes)
    accuracy = measures()["000.t1.t0.45"](results)
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
    results = recorded(full.results, parse_params(values))
    dump_record(evaluated.path, evaluated.values)
    finding = measures()["000.t1.t0.0"](results)
    assert finding is not None
    assert [each["stage"] for each in finding.records] == stages
