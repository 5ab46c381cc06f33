"""Errors that others published: each with its source, in the range of percent and of millions of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.results.claims import ClaimsError, load_claims
from pipeline.results.public_curves import load_public_curves


def test_every_curve_has_a_source_and_values_that_can_be() -> None:
    curves = load_public_curves()
    assert len({curve.name for curve in curves}) == len(curves) >= 10
    for curve in curves:
        assert any(word in curve.source for word in ("github.com/", "arXiv:")), curve.name
        images, errors = zip(*curve.points, strict=True)
        assert list(images) == sorted(images)
        assert 0.1 <= images[0] <= images[-1] <= 200
        assert list(errors) == sorted(errors, reverse=True), "the last is the lowest"
        assert 0.5 < errors[-1] <= errors[0] < 80, "five classes: a guess is wrong in 80 %"
        assert curve.read != "read off a plot" or curve.note


@pytest.mark.parametrize(("claim", "parameters"), [("004.t1.r3", 310_000), ("004.small", 68_000)])
def test_the_papers_errors_are_those_of_its_claims(claim: str, parameters: int) -> None:
    (of_paper,) = (
        curve for curve in load_public_curves() if "Sabour" in curve.source and curve.parameters == parameters
    )
    assert of_paper.points[-1][1] == {each.id: each.value for each in load_claims()}[claim]


KNOWN = ("name: a", "source: b", "parameters: null", "iterations: 3", "read: log", "points: [[1, 2]]")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (KNOWN[:1] + KNOWN[2:], "source"),
        ((*KNOWN[:4], "read: guessed", KNOWN[5]), "read"),
        ((*KNOWN[:5], "points: []"), "points"),
        ((*KNOWN[:5], "points: [[0, 2]]"), "points"),
        ((*KNOWN[:5], "points: [[1, 200]]"), "points"),
        ((*KNOWN, "colour: red"), "colour"),
    ],
)
def test_a_malformed_curve_is_refused(tmp_path: Path, parts: Sequence[str], message: str) -> None:
    path = tmp_path / "public_curves.yaml"
    path.write_text(f"- {{{', '.join(KNOWN)}}}")
    assert len(load_public_curves(path)) == 1
    path.write_text(f"- {{{', '.join(parts)}}}")
    with pytest.raises(ClaimsError, match=message):
        load_public_curves(path)
