"""The table of the fault campaign."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.faults.__main__ import DIFFERING, SURVIVED, Case, report
from pipeline.page.tables import faults


def test_the_table_has_every_kind_and_their_sum(tmp_path: Path) -> None:
    cases = [Case(0, "kill", "", SURVIVED), Case(1, "kill", "", DIFFERING), Case(2, "cut", "", SURVIVED)]
    path = tmp_path / "faults.json"
    path.write_text(json.dumps(report(cases, {}, 0, "abc")))
    (table,) = faults(path)
    assert [list(row) for row in table.data.itertuples(index=False)] == [
        ["kill", 2, 1, 0, 1, 0],
        ["cut", 1, 1, 0, 0, 0],
    ]
    assert list(table.shown.iloc[-1]) == ["all", "3", "2", "0", "1", "0"]
    assert "2 of 3" in table.caption
    assert "abc" in table.to_markdown()
