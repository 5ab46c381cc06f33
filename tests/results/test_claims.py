"""The list of claims: complete, and refused by name where it is malformed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.results.claims import DOCUMENTS, ClaimsError, load_claims


def test_every_document_has_claims_each_of_them_once() -> None:
    claims = load_claims()
    assert len({claim.id for claim in claims}) == len(claims) > 80
    assert {claim.document for claim in claims} == set(DOCUMENTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {id: 000.a, where: w, claim: c}", "either a value or holds_when"),
        ("- {id: 000.a, where: w, claim: c, value: 1}", "a claim with a value must have better"),
        ("- {id: 000.a, where: w, claim: c, holds_when: h, wehre: w}", "wehre"),
        ("- {id: 000.a, where: w, claim: c, holds_when: h, unit: u}\n" * 2, "000.a"),
        ("- [", "claims"),
    ],
)
def test_a_malformed_list_of_claims_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ClaimsError, match=message):
        load_claims(path)
