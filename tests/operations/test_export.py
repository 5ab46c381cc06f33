"""What is exported can be read by itself: every file is listed in the metadata, and says what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from commands import file_size_limit

from pipeline import report
from pipeline.errors import UserError
from pipeline.operations.export import export
from pipeline.results.claims import load_claims

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_committed_results_become_a_crate(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    count = export(ROOT, folder)
    listed = {each["@id"]: each for each in json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]}
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == count
    assert set(files) <= listed.keys()
    drawn = list((folder / "figures").glob("*.pdf"))
    assert drawn
    contents = [path.read_bytes() for path in drawn]
    assert all(each.startswith(b"%PDF") and b"/FontFile2" in each for each in contents)
    assert not any(b"/Type3" in each for each in contents), "publishers refuse these fonts"
    assert all(listed[f"figures/{path.name}"]["description"] for path in drawn)
    assert (folder / "tables/grid-digits.tex").read_text().startswith("\\begin{table}")
    claims = pd.read_csv(folder / "scorecard.csv", dtype={"document": str})
    assert list(claims["id"]) == [claim.id for claim in load_claims()]
    assert claims["ours.value"].notna().any()
    assert claims["remarks"].str.startswith("not the paper's data (MNIST)").any()
    with pytest.raises(UserError, match="exists"):
        export(ROOT, folder)


def test_a_crate_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "draw", lambda *_: [])
    monkeypatch.setattr(report, "build", lambda _: [])
    with file_size_limit(1_000), pytest.raises(OSError, match="File too large"):
        export(ROOT, tmp_path / "results")
    assert not (tmp_path / "results").exists()
