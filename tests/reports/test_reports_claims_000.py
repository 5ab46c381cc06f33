"""What is said of the settings of results that answer the claims of document 000."""

from __future__ import annotations

from typing import Any

import pytest
from made_up import Writer, recorded, with_evidence
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
    accuracy, size = (measures()[name](results) for name in ("000.t1.t0.0", "000.params"))
    assert accuracy is not None
    assert size is not None
    assert "objects 8 / 16 (ours / the paper's)" in accuracy.remarks
    assert not any("objects 8" in words for words in size.remarks)
    assert [each["stage"] for each in accuracy.records] == ["evaluate"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({}, None),
        ({"affinities": "uniform"}, "rho uniform"),
        ({"inactive_pose": "initial", "inactive_pose_sd": 0.35}, "absent parts around their initial pose, sd 0.35"),
        ({"early_coupling": 0.2, "early_epochs": 3, "ramp_epochs": 5}, "times 0.2 for 3 epochs, whole after 5 more"),
        ({"seeding_epoch": 1}, "objects set from the parts at epoch 1"),
        ({"slots": "any"}, "parts in any slot (paper: their own)"),
        ({"hidden": 64, "pixel_sd": 0.1}, "pixel sd 0.1 / 0.2, hidden 64 / 128 (ours / the paper's)"),
    ],
)
def test_every_departure_of_the_capsule_model_is_named(
    full: Writer, values: dict[str, Any], changes: dict[str, Any], remark: str | None
) -> None:
    run = values["runs"]["capsules-digits"]
    run["training"] = run["training"] | {"epochs": 2}
    run["model"] = run["model"] | changes
    values = with_evidence(values | {"optimise": {}}, "generative", optimise=None)  # of which slots must be own
    finding = measures()["000.params"](recorded(full.results, parse_params(values)))
    assert finding is not None
    assert finding.remarks[0] == "not the paper's data (MNIST)"
    said = finding.remarks[1:]
    assert len(said) == (remark is not None)
    assert all(str(remark) in words for words in said)
