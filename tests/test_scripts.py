"""The scripts: the lock, and the tables of the READMEs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from jinja2 import UndefinedError

from scripts import prune_lock, readme_tables

ROOT = Path(__file__).parents[1]


def test_items_that_are_gone_leave_the_lock_and_the_others_stay(tmp_path: Path) -> None:
    Repo.init(str(tmp_path), no_scm=True).close()
    stage = {"foreach": "${runs}", "do": {"cmd": "true ${key}"}}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train": stage}}))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"runs": {"a": {}, "b": {}}}))
    kept = {"schema": "2.0", "stages": {"train@a": {"cmd": "true a"}}}
    lock = {**kept, "stages": {**kept["stages"], "train@c": {"cmd": "true c"}, "sweep@a-45": {"cmd": "true"}}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    assert prune_lock.prune(tmp_path) == ["sweep@a-45", "train@c"]
    content = (tmp_path / "dvc.lock").read_text()
    assert yaml.safe_load(content) == kept
    assert prune_lock.prune(tmp_path) == []
    assert (tmp_path / "dvc.lock").read_text() == content


def test_the_texts_in_the_repository_are_those_of_its_results() -> None:
    for path, text in readme_tables.texts(ROOT).items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: python scripts/readme_tables.py"
    readme = (ROOT / readme_tables.README).read_text(encoding="utf-8")
    assert readme.count("<!-- made by scripts/readme_tables.py: ") == readme.count("<!-- end -->") == 2


def test_a_template_takes_its_numbers_from_results() -> None:
    template = '{{ at("paper 004.t1.r3") | fixed }} {{ 0.123456 | percent(2) }} {{ 1234.5 | fixed(0) }} {{ hours }}\n'
    assert readme_tables.rendered(template, {"hours": ["a", "b"]}) == "1.8 12.35 1,234 a\nb\n"
    with pytest.raises(UndefinedError):
        readme_tables.rendered("{{ minutes }}", {})
    with pytest.raises(KeyError, match="no row with"):
        readme_tables.cell("results/regression/grid-mnist.csv", "test", model="one-vs-all", size=5)


def test_claims_are_counted_by_document_and_outcome() -> None:
    rows = [
        ("000", "within", "MNIST", ["1 seed (paper: 5)"]),
        ("000", "holds", "MNIST", []),
        ("000", "better", "MNIST, Fashion-MNIST", []),
        ("000", "not run", None, []),
        ("004", "holds", "toys", ["1 seed (paper: 5)"]),
        *(("004", verdict, "toys", []) for verdict in ("worse", "fails", "not tested", "undecided")),
    ]
    scorecard = [dict(zip(("document", "verdict", "dataset", "remarks"), row, strict=True)) for row in rows]
    lines = readme_tables.claims(scorecard)
    assert lines[0] == (
        "| document | claims run | agree | of these at the document's setting | better | do not agree "
        "| not tested or undecided | data |"
    )
    assert lines[2].endswith("(`000`) | 3 of 4 | 2 | 1 | 1 | 0 | 0 | MNIST, Fashion-MNIST |")
    assert lines[6].endswith("(`004`) | 5 of 5 | 1 | 0 | 0 | 2 | 2 | toys |")
    assert lines[7] == "| all | 8 of 9 | 3 | 1 | 1 | 2 | 2 |  |"
