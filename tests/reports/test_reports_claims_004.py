"""The claims of document 004: when they hold, and what is said beside."""

from __future__ import annotations

from typing import Any

import made_up_matrix
import pandas as pd
import pytest
from made_up import Writer, scorecard, with_evidence
from made_up_matrix import CONDITIONS, ERRORS, KINDS, VOTES, with_matrix
from records import changed

from pipeline.params import parse_params
from pipeline.systems.matrix_capsules.report.runs import ROWS as TABLE_1

ROWS = dict(zip(TABLE_1, CONDITIONS, strict=False))
"""By claim of Table 1, the condition that answers it."""
NUMBERS = ("t2.az.caps", "t2.az.cnn", "t2.el.caps", "t2.el.cnn")
CHECKS = ("fig2", "fig3.fgsm", "fig3.bim", "fig3.target", "floor", "blackbox", "gradzeros")


@pytest.fixture
def values(values: dict[str, Any]) -> dict[str, Any]:
    return with_matrix(values, norb="smallnorb", copied="smallnorb48", mnist="mnist", cifar="cifar10")


@pytest.fixture
def studied(writer: Writer) -> Writer:
    made_up_matrix.everything(writer)
    return writer


def verdicts(writer: Writer, values: dict[str, Any], claims: str = "004") -> dict[str, Any]:
    """Rows of the document by claim, of results that were all made with the parameters `values`."""
    return scorecard(writer, parse_params(values), claims)


def test_table_1_in_percent(studied: Writer, values: dict[str, Any]) -> None:
    found = verdicts(studied, values)
    for claim, condition in ROWS.items():
        assert found[claim]["ours"]["value"] == pytest.approx(100 * ERRORS[condition]), claim
        assert found[claim]["ours"]["sd"] == pytest.approx(1.2)
        assert found[claim]["provenance"]["items"] == ["ablation/toys"]
    assert found["004.t1.cnn"]["ours"]["value"] == pytest.approx(12)
    assert found["004.crops"]["ours"]["value"] == pytest.approx(15)
    assert found["004.crops"]["provenance"]["items"] == ["train/matrix-toys", "evaluate/matrix-toys"]


def test_trainings_that_are_too_short_are_told(studied: Writer, values: dict[str, Any]) -> None:
    """The run ends at a training error of 7 + 70 exp(-4) = 8.3 %, conditions at 5 %."""
    found = verdicts(studied, values)
    assert (found["004.crops"]["verdict"], found["004.crops"]["judged"]) == ("not tested", "worse")
    why = {claim: row["why"][1] for claim, row in found.items() if row["why"]}
    assert "training error 8.28 %" in why["004.crops"]
    assert "training error 5.00 %" in why["004.t1.r3"]
    assert "training error" not in why["004.t1.r1"], "5 % are less than 9.7 %"
    assert "epochs of" in why["004.t1.r1"]
    values["runs"]["matrix-toys"]["model"]["mixup"] = 0.2
    assert "training error" not in verdicts(studied, values)["004.t1.r3"]["why"][1], "mixed images have two classes"


@pytest.mark.parametrize(
    ("claim", "role", "views", "channels"), [("mnist", "mnist", 1, 32), ("cifar", "cifar10", 3, 256)]
)
def test_other_data_sets_have_rows_of_their_own(
    studied: Writer, values: dict[str, Any], claim: str, role: str, views: int, channels: int
) -> None:
    before, claim = verdicts(studied, values), f"004.{claim}"
    made_up_matrix.evaluated(studied, "other", 0.02, 0.015)
    values["runs"]["other"] = made_up_matrix.run(
        "matrix_capsules", claim.removeprefix("004."), classes=10, views=views, channels=channels
    )
    after = verdicts(studied, with_evidence(values, "matrix_capsules", networks={role: "other"}))
    assert before[claim]["verdict"] == "not run"
    assert after[claim]["ours"]["value"] == pytest.approx(2)
    assert after[claim]["remarks"][0].startswith("trained on 6,400 images (paper: ")
    assert {name for name in after if after[name]["ours"] != before[name]["ours"]} == {claim}


def test_novel_viewpoints(studied: Writer, values: dict[str, Any]) -> None:
    found = verdicts(studied, values)
    ours = [found[f"004.{name}"]["ours"]["value"] for name in NUMBERS]
    assert ours == pytest.approx([20, 26, 19, 24])
    assert "0.77 times the CNN's (paper: 0.68)" in found["004.t2.az.caps"]["notes"][1]
    assert "30 epochs of 66 steps" in found["004.t2.az.caps"]["remarks"][-1], "a third of the images is familiar"
    # The CNN is better, and matched at an error of 36 %. The document's CNN is compared at the end of training.
    made_up_matrix.viewed(studied, "azimuth", {"capsules": 0.2, "cnn": 0.26}, lead=-0.1)
    assert verdicts(studied, values)["004.t2.az.cnn"]["ours"]["value"] == pytest.approx(26)


def test_checks_hold_and_tell_numbers(studied: Writer, values: dict[str, Any]) -> None:
    found = verdicts(studied, values)
    assert {found[f"004.{name}"]["judged"] for name in CHECKS} == {"holds"}
    ours = [found[f"004.{name}"]["ours"]["value"] for name in CHECKS]
    # FGSM: capsules keep (66 + 55 + 43 + 30) / 4 = 48.5 of 80 %, the CNN 24.5 of 88: 31.5 and 63.5 points lost.
    # BIM: 45 of 80 and 16.5 of 88. Targets: (18.5 + 23.25) / 2 and (36.25 + 64.75) / 2.
    assert ours == pytest.approx([39, 31.5 - 63.5, 35 - 71.5, 20.875 - 50.5, 26, 52.375 - 51.75, 1])
    notes = found["004.fig3.fgsm"]["notes"]
    assert "capsules 31.5 points, CNN 63.5 points; accuracy without attack: 80.0 % and 88.0 %" in notes[0]
    assert "standard error of the difference 2.2 points" in notes[1]
    assert (
        "lowest accuracy under BIM: capsules 26.0 % at epsilon 0.4, CNN 2.0 % at epsilon 0.4"
        in found["004.floor"]["notes"]
    )
    assert "2e-05 in capsules, 0.001 in the CNN" in found["004.gradzeros"]["notes"][-1]
    assert "tested on 1,500 images (paper: 24,300)" in found["004.floor"]["remarks"]
    assert found["004.floor"]["provenance"]["items"] == ["train/matrix-toys", "train/cnn-toys", "attack/toys"]
    # 49.9 % of 1,500 images have a standard error of 1.3 points, of either network, and replicas one of 1 point each.
    assert "standard error of the difference 2.3 points" in found["004.blackbox"]["notes"][1]


def test_differences_have_the_noise_of_their_images_where_a_network_has_one_seed(
    studied: Writer, values: dict[str, Any]
) -> None:
    path = studied.results.records / "attack" / "toys.csv"
    table = pd.read_csv(path)
    table[(table["network"] == "cnn") | (table["replica"] == 0)].to_csv(path, index=False)
    # 47.5 and 24.5 % are left of 79 and 88 % (FGSM); the CNN's two seeds rise and fall as one: what they lose is equal.
    shares = (0.79, 0.88, 0.475, 0.245)
    ours = verdicts(studied, values)["004.fig3.fgsm"]["ours"]
    assert (ours["n"], ours["standard_error"]) == (1, True)
    assert ours["sd"] == pytest.approx(100 * sum(share * (1 - share) / 1500 for share in shares) ** 0.5)


def write(writer: Writer, **changes: Any) -> None:
    """Results with other curves under attack, by kind, method and network, shares of votes, leads or gradients."""
    kinds, shares = KINDS, {name: changes[name] for name in VOTES if name in changes}
    for path, curve in changes.items():
        kinds = changed(kinds, f"{path}/capsules", curve) if "/" in path else kinds
    made_up_matrix.attacks(writer, "toys", kinds, changes.get("zeros", (0.01, 0.02)))
    made_up_matrix.evaluated(writer, "matrix-toys", 0.17, 0.15, votes=made_up_matrix.votes(VOTES | shares))
    made_up_matrix.viewed(writer, "azimuth", {"capsules": 0.2, "cnn": 0.26}, changes.get("lead", 0.0))


@pytest.mark.parametrize(
    ("claim", "changes", "verdict"),
    [
        # Two standard errors are 7.2 and 6.9 points: of 100 images, and of two replicas with an sd of a point.
        ("t2.az.caps", {"lead": 0.07}, "worse"),
        ("t2.az.caps", {"lead": 0.08}, "not run"),
        ("fig3.bim", {"general/BIM": [0.80, 0.1, 0.05, 0.0, 0.0]}, "fails"),
        # Near chance from the start; ahead at every epsilon, but more is lost; a lead within noise
        ("fig3.fgsm", {"general/FGSM": [0.10, 0.06, 0.05, 0.03, 0.02]}, "fails"),
        ("fig3.fgsm", {"general/FGSM": [0.999, 0.65, 0.40, 0.18, 0.10]}, "fails"),
        ("fig3.fgsm", {"general/FGSM": [0.87, 0.51, 0.31, 0.13, 0.07]}, "fails"),
        ("fig3.target", {"targeted/FGSM": [0.05, 0.3, 0.4, 0.5, 0.6]}, "fails"),
        ("fig3.target", {"targeted/BIM": [0.05, 0.6, 0.7, 0.8, 0.9]}, "fails"),
        ("floor", {"general/FGSM": [0.80, 0.6, 0.4, 0.14, 0.3]}, "fails"),
        ("blackbox", {"black-box/FGSM": [0.80, 0.3, 0.2, 0.2, 0.2]}, "fails"),
        ("blackbox", {"black-box/BIM": [0.80, 0.9, 0.9, 0.9, 0.9]}, "fails"),
        ("blackbox", {"black-box/FGSM": [0.95, 0.72, 0.63, 0.47, 0.33]}, "fails"),  # as much is left, more is lost
        ("gradzeros", {"zeros": (0.03, 0.02)}, "fails"),
        ("fig2", {"near": [0.3, 0.4, 0.29]}, "fails"),
        ("fig2", {"near": [0.3, 0.4, 0.335]}, "fails"),  # 32 % of 400 images have a standard error of 2.3 points
        ("fig2", {"all": [0.3, 0.4, 0.335]}, "fails"),
        ("fig2", {"all": [0.3, 0.29, 0.35]}, "holds"),
        ("fig2", {"all": [0.3, 0.35]}, "not run"),  # an iteration is missing
    ],
)
def test_a_claim_can_fail(
    studied: Writer, values: dict[str, Any], claim: str, changes: dict[str, Any], verdict: str
) -> None:
    write(studied, **changes)
    name = f"004.{claim}"
    assert verdicts(studied, values, name)[name]["judged"] == verdict


@pytest.mark.parametrize(
    ("images", "floor", "alike"),
    [(300, "holds", "fails"), (1500, "fails", "holds"), (1250, "fails", "fails"), (100, "fails", "fails")],
)
def test_noise_decides_only_where_there_are_images_enough(
    studied: Writer, values: dict[str, Any], images: int, floor: str, alike: str
) -> None:
    """At 16 %, four points below chance; two standard errors are 4.6, 2.1, 2.3 and 8 points, of which 5 may be noise.
    Under black-box attacks, two standard errors of 1,250 images are 4.9 points of what is left, 5.1 of what is lost.
    """
    write(studied, **{"general/BIM": [0.80, 0.64, 0.52, 0.38, 0.16]})
    values["attack"]["toys"]["images"] = images
    found = verdicts(studied, values)
    assert (found["004.floor"]["judged"], found["004.blackbox"]["judged"]) == (floor, alike)
