"""The list of claims is complete, and a malformed claim is refused; so is what others published, with its source."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.results.claims import DOCUMENTS, Claim, load_claims


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
