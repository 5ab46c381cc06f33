"""The numbers in README's sentences on results are those of the recorded results."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.report.equivariance import overall
from pipeline.results.reading import Results
from scripts import readme_tables

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "reports" / "paper"

SENTENCES: dict[str, list[str]] = {
    "t0 on affine images just so: {:.1f} ± {:.1f} % (document: {:.0f} %).": [
        "000.t1.t0.aff", "sd 000.t1.t0.aff", "paper 000.t1.t0.aff",
    ],
    "trained without shifts: {:.0f} %.": ["evaluate/capsules-mnist probe/t0/refit/affine"],
    "one *sample* of t0 has {:.0f} % accuracy where presences are 0 or 1, and {:.0f} % where the sample is relaxed": [
        "evaluate/capsules-mnist probe/t0_binary/refit/rotated_0",
        "evaluate/capsules-mnist probe/t0_sampled/refit/rotated_0",
    ],
    "on clean digits ({:.0f} %)": ["paper 000.t1.vae.0"],
    "CapsNet has an accuracy of {:.2f} % with routing (document: {:.2f} %)": ["001.acc.r3", "paper 001.acc.r3"],
    "it reaches {:.2f} %, after a first epoch without progress (document: {:.2f} %)": [
        "001.acc.r0", "paper 001.acc.r0",
    ],
    "at the published step size ({:.1f} %)": ["evaluate/capsnet-unrouted-mnist test/accuracy"],
    "and L1 raises Hoyer's index by {:.2f}.": ["001.fig1.l1.code"],
    "in any case ({:.2f} %), and so is a quarter of the width ({:.2f} % without routing, {:.2f} % with it)": [
        "evaluate/capsnet-averaged-mnist test/accuracy",
        "evaluate/capsnet-unrouted-narrow test/accuracy",
        "evaluate/capsnet-routed-narrow test/accuracy",
    ],
    "are reproduced ({:.2f} and {:.2f} %)": ["002.d2.digits", "002.d2.fashion"],
    "have {:.2f} by theory, and {:.2f} if they are damped and trained with warps and mixup; features of a CNN with as "
    "many parameters have {:.2f}. By fitted maps, these poses have {:.2f} and {:.2f}.": [
        "overall matrix-small-smallnorb poses own", "overall matrix-small-two-damped-smallnorb poses own",
        "overall cnn-small-smallnorb hidden fitted", "overall matrix-small-smallnorb poses fitted",
        "overall matrix-small-two-damped-smallnorb poses fitted",
    ],
    "its class capsules have {:.2f} by fitted maps, and the CNN {:.2f}.": [
        "overall capsnet-routed-mnist capsules fitted", "overall cnn-mnist hidden fitted",
    ],
    "change by {:.0f} % of their sd within classes, and the poses of matrix capsules, trained on the same crops, by "
    "{:.0f} %": [
        "equivariance/cnn-small-smallnorb within_classes/trained/hidden/invariance/azimuth/20",
        "equivariance/matrix-small-smallnorb within_classes/trained/poses/invariance/azimuth/20",
    ],
    "it leaves {:.0f} % and {:.0f} %, and one matrix that acts on all poses, as theory has it, {:.0f} %": [
        "equivariance/cnn-small-smallnorb within_classes/trained/hidden/fitted/azimuth/20",
        "equivariance/matrix-small-smallnorb within_classes/trained/poses/fitted/azimuth/20",
        "equivariance/matrix-small-smallnorb within_classes/trained/poses/own/azimuth/20",
    ],
    "poses change by {:.0f} %, of which a linear map leaves {:.0f} %: they follow better, but not as theory says "
    "({:.0f} %)": [
        "equivariance/matrix-small-two-damped-smallnorb within_classes/trained/poses/invariance/azimuth/20",
        "equivariance/matrix-small-two-damped-smallnorb within_classes/trained/poses/fitted/azimuth/20",
        "equivariance/matrix-small-two-damped-smallnorb within_classes/trained/poses/own/azimuth/20",
    ],
    "a test error on smallNORB of {:.1f} % with three iterations of EM routing, as in the document ({:.1f} %)": [
        "evaluate/matrix-small-damped-smallnorb test/centre", "paper 004.small",
    ],
    "three iterations have {:.1f} % after 0.86 million images (document: {:.1f} %)": ["004.t1.r3", "paper 004.t1.r3"],
    "damped by 0.1 as published, it is {:.1f} %": ["evaluate/matrix-small-smallnorb test/centre"],
    "without coordinates it is {:.1f} %, with cross-entropy {:.1f}": ["004.t1.nocoord", "004.t1.xent"],
    "vector poses {:.1f}, one iteration {:.1f} and five {:.1f} %": ["004.t1.vec", "004.t1.r1", "004.t1.r5"],
    "With two iterations it is {:.1f} ± {:.1f} % in the same way (two seeds), {:.1f} % on crops": [
        "evaluate/matrix-small-two-damped-smallnorb test/centre",
        "sd evaluate/matrix-small-two-damped-smallnorb test/centre",
        "evaluate/matrix-small-crops-smallnorb test/centre",
    ],
    "and {:.1f} % on warped images. With mixup": ["evaluate/matrix-small-warped-smallnorb test/centre"],
    "as mixing proportions as well, it is {:.1f} %": ["evaluate/matrix-small-mixing-smallnorb test/centre"],
    "with variational Bayes on warped images, it is {:.1f} %, and {:.1f} % after 1.7 million images": [
        "evaluate/vb-warped-smallnorb test/centre", "evaluate/vb-long-smallnorb test/centre",
    ],
    "give {:.1f} % with three iterations after 3.5 million, and {:.1f} % with two after 4.3 million": [
        "evaluate/matrix-small-long-smallnorb test/centre", "evaluate/matrix-small-two-long-smallnorb test/centre",
    ],
    "three iterations have {:.1f} % after 5 million images": ["evaluate/matrix-small-published-smallnorb test/centre"],
    "A CNN of 4.2 million parameters has {:.1f} % on warped images, and {:.1f} % with mixup as well": [
        "evaluate/cnn-warped-smallnorb test/centre", "evaluate/cnn-mixup-smallnorb test/centre",
    ],
    "one with as few parameters as the capsules, 68,000, has {:.1f} ± {:.1f} % on crops, and {:.1f} ± {:.1f} % with "
    "warps and mixup, where the capsules have {:.1f} %.": [
        "evaluate/cnn-small-smallnorb test/centre", "sd evaluate/cnn-small-smallnorb test/centre",
        "evaluate/cnn-small-mixup-smallnorb test/centre", "sd evaluate/cnn-small-mixup-smallnorb test/centre",
        "evaluate/matrix-small-two-damped-smallnorb test/centre",
    ],
    "the network of the document's size has {:.2f} % (document: {:.2f} %), and our CNN of 2.4 million parameters "
    "{:.2f} ± {:.2f} %": [
        "004.mnist", "paper 004.mnist", "evaluate/cnn-mnist test/centre", "sd evaluate/cnn-mnist test/centre",
    ],
    "without an attack {:.0f} and {:.0f} %": [
        "attack/smallnorb-mixup own_loss/FGSM/general/capsules/0", "attack/smallnorb-mixup own_loss/FGSM/general/cnn/0",
    ],
    "novel elevations ({:.1f} ± {:.1f} and {:.1f} ± {:.1f} %)": [
        "004.t2.el.caps", "sd 004.t2.el.caps", "004.t2.el.cnn", "sd 004.t2.el.cnn",
    ],
    "novel azimuths ({:.1f} ± {:.1f} and {:.1f} ± {:.1f} %)": [
        "004.t2.az.caps", "sd 004.t2.az.caps", "004.t2.az.cnn", "sd 004.t2.az.cnn",
    ],
    "familiar ones (capsules {:.1f} ± {:.1f} %, CNN {:.1f} ± {:.1f} %)": [
        "viewpoint/azimuth-mixup late/capsules/novel", "sd viewpoint/azimuth-mixup late/capsules/novel",
        "viewpoint/azimuth-mixup late/cnn/novel", "sd viewpoint/azimuth-mixup late/cnn/novel",
    ],
    "the CNN is ahead ({:.1f} ± {:.1f} and {:.1f} ± {:.1f} %)": [
        "viewpoint/elevation-mixup late/capsules/novel", "sd viewpoint/elevation-mixup late/capsules/novel",
        "viewpoint/elevation-mixup late/cnn/novel", "sd viewpoint/elevation-mixup late/cnn/novel",
    ],
    "as what others published: {:.1f} % with three iterations": ["evaluate/matrix-small-smallnorb test/centre"],
    "three iterations have {:.1f} % after 0.86 million, and two {:.1f} % after 4.3 million": [
        "evaluate/matrix-small-damped-smallnorb test/centre", "evaluate/matrix-small-two-long-smallnorb test/centre",
    ],
}  # fmt: skip
"""Sentences with places for numbers, and where each number is: a claim of the scorecard, ours or the paper's; a
measurement of an item, as a share; or an overall equivariance error. `sd`: over seeds."""


def number(place: str) -> float:
    """In percent, if it is a share."""
    if place.startswith("overall "):
        _, item, layer, measure = place.split(" ")
        found = Results(PAPER / "results", ROOT / "results/paper").numbers("equivariance", item)
        assert found is not None
        error = overall(found, layer, measure)
        assert error is not None
        return error.mean
    return readme_tables.at(place) * (100 if "/" in place else 1)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_readme_says_what_was_measured(sentence: str) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = sentence.format(*map(number, SENTENCES[sentence]))
    assert said in readme, f"the results say: {said}"
