"""What MLflow shows of a run at first sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from records import load_record

from pipeline.results.spread import flat
from stages import tracked


def test_a_reproduction_has_its_claims_as_metrics() -> None:
    verdicts = ("within", "holds", "holds", "not run")
    rows: list[dict[str, Any]] = [{"id": f"00{n}", "verdict": each, "ours": None} for n, each in enumerate(verdicts)]
    rows[0]["ours"] = {"value": 98.5, "sd": 0, "n": 1}
    metrics = tracked.reproduction_metrics(rows)
    counts = {"claims/run": 3.0, "claims/within": 1.0, "claims/holds": 2.0, "claims/not_run": 1.0}
    assert {name: value for name, value in metrics.items() if value} == {**counts, "claim_values/000": 98.5}


def test_the_views_show_metrics_that_runs_have() -> None:
    tags = tracked.experiment_tags("quick")
    found = {key.rpartition(".")[2]: json.loads(value) for key, value in tags.items() if "sharedViewState" in key}
    assert found.keys() == set(tracked.VIEWS)
    metrics = tracked.reproduction_metrics([])
    shown = [each.split("`")[1] for each in found["reproductions"]["selectedColumns"] if each.startswith("metrics")]
    assert shown
    assert set(shown) <= metrics.keys()
    records = Path(tracked.__file__).parents[1] / "reports/quick/results"
    for view, stage in (("trainings", "train"), ("evaluations", "evaluate")):
        columns = [each.split("`")[1] for each in found[view]["selectedColumns"] if each.startswith("metrics")]
        names = {name for path in (records / stage).glob("*.json") for name in flat(load_record(path))}
        assert set(columns) <= names, "of the committed results"
