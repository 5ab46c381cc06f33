"""The tables of the READMEs that are made from results."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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


def row(document: str, verdict: str, dataset: str | None) -> dict[str, Any]:
    return {"document": document, "verdict": verdict, "dataset": dataset}


def test_claims_are_counted_by_document_and_outcome(script: ModuleType) -> None:
    lines = script.claims(
        [
            row("000", "within", "MNIST; 1 seed (paper: 5)"),
            row("000", "holds", "MNIST"),
            row("000", "better", "MNIST, Fashion-MNIST"),
            row("000", "not run", None),
            row("004", "holds", "toys; not the paper's data (smallNORB)"),
            row("004", "worse", "toys"),
            row("004", "fails", "toys"),
        ]
    )
    assert lines[0] == (
        "| document | claims run | agree | of these at the paper's setting | better | do not agree | data |"
    )
    assert lines[2].endswith("(`000`) | 3 of 4 | 2 | 1 | 1 | 0 | MNIST, Fashion-MNIST |")
    assert lines[6].endswith("(`004`) | 3 of 3 | 1 | 0 | 0 | 2 | toys |")
    assert lines[7] == "| all | 6 of 7 | 3 | 1 | 1 | 2 |  |"


def test_hours_are_summed_over_the_items_of_a_stage_that_one_commit_made(script: ModuleType) -> None:
    def item(label: str, seconds: float, commit: str, state: str = "recorded") -> tuple[SimpleNamespace, Any]:
        runs = {"a": {"replicas": 5, "training": {"epochs": 24}}, "b": {"replicas": 1, "training": {"epochs": 3}}}
        numbers = SimpleNamespace(records=[{"seconds": seconds, "settings": {"runs": runs}}])
        return SimpleNamespace(label=label, commit=commit, state=state), numbers if commit else None

    made = [
        item("train/a", 3600, "1234567"),
        item("train/b", 1800, "1234567"),
        item("train/c", 0, "", "missing"),
        item("sweep/a-0", 900, "1234567"),
        item("sweep/a-45", 900, "1234567", "stale"),
    ]
    by_label = {each.label: numbers for each, numbers in made}
    results = SimpleNamespace(numbers=lambda stage, name: by_label[f"{stage}/{name}"])
    lines = script.hours([each for each, _ in made], results)
    assert lines[2:] == [
        "| train | a (5 seeds of 24 epochs), b (3 epochs) | 1.5 | 1234567 | recorded |",
        "| sweep | a-0 | 0.2 | 1234567 | recorded |",
        "| sweep | a-45 | 0.2 | 1234567 | stale |",
        "| all |  | 2.0 |  |  |",
    ]


def test_only_the_named_blocks_change_and_an_unknown_name_is_an_error(script: ModuleType) -> None:
    block = "<!-- made by scripts/readme_tables.py: {} -->\n{}<!-- end -->"
    text = f"before\n{block.format('claims', 'old' + chr(10))}\n<!-- end --> after"
    assert script.updated(text, {"claims": ["new", "lines"]}) == (
        f"before\n{block.format('claims', 'new' + chr(10) + 'lines' + chr(10))}\n<!-- end --> after"
    )
    with pytest.raises(KeyError, match="unknown"):
        script.updated(block.format("unknown", ""), {})
