"""The list of claims is complete, and a malformed claim is refused; so is what others published, with its source."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.results.claims import DOCUMENTS, OFF_A_PLOT, Claim, load_claims, load_public_curves


def test_every_document_has_claims_each_of_them_once() -> None:
    claims = load_claims()
    assert len({claim.id for claim in claims}) == len(claims) > 80
    assert {claim.document for claim in claims} == set(DOCUMENTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "a value or holds_when, not both"),
        ({"value": 1}, "`better` must be given"),
        ({"holds_when": "h"}, "needs the unit"),
        ({"holds_when": "h", "unit": "u", "wehre": "w"}, "wehre"),
    ],
)
def test_a_malformed_claim_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({"id": "000.a", "where": "w", "claim": "c", **changes})


def test_every_public_curve_has_a_source_and_values_that_can_be() -> None:
    curves = load_public_curves()
    assert len({curve.name for curve in curves}) == len(curves) >= 10
    for curve in curves:
        assert any(word in curve.source for word in ("github.com/", "arXiv:")), curve.name
        images, errors = zip(*curve.points, strict=True)
        assert list(images) == sorted(images)
        assert 0.1 <= images[0] <= images[-1] <= 200
        assert list(errors) == sorted(errors, reverse=True), "the last is the lowest"
        assert 0.5 < errors[-1] <= errors[0] < 80, "five classes: a guess is wrong in 80 %"
        assert curve.read in ("printed", "log") or (curve.read == OFF_A_PLOT and curve.note)
