"""The tables of the READMEs that are made from results."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from script_modules import load

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("readme_tables")


def test_the_tables_in_the_repository_are_those_of_its_results(script: ModuleType) -> None:
    made = script.tables(ROOT)
    for path in script.FILES:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert script.updated(text, made) == text, f"{path}: python scripts/readme_tables.py"
        assert text.count("<!-- made by scripts/readme_tables.py: ") == text.count("<!-- end -->") == 1


def test_claims_are_counted_by_document_and_outcome(script: ModuleType) -> None:
    rows = [
        ("000", "within", "MNIST; 1 seed (paper: 5)"),
        ("000", "holds", "MNIST"),
        ("000", "better", "MNIST, Fashion-MNIST"),
        ("000", "not run", None),
        ("004", "holds", "toys; not the paper's data (smallNORB)"),
        *(("004", verdict, "toys") for verdict in ("worse", "fails", "not tested", "undecided")),
    ]
    lines = script.claims([dict(zip(("document", "verdict", "dataset"), row, strict=True)) for row in rows])
    assert lines[0] == (
        "| document | claims run | agree | of these at the document's setting | better | do not agree "
        "| not tested or undecided | data |"
    )
    assert lines[2].endswith("(`000`) | 3 of 4 | 2 | 1 | 1 | 0 | 0 | MNIST, Fashion-MNIST |")
    assert lines[6].endswith("(`004`) | 5 of 5 | 1 | 0 | 0 | 2 | 2 | toys |")
    assert lines[7] == "| all | 8 of 9 | 3 | 1 | 1 | 2 | 2 |  |"
