"""What MLflow shows of a run at first sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from records import load_record

from pipeline.page.scorecard import VERDICTS
from pipeline.results.spread import flat
from stages import tracked


def counts(**papers: int) -> dict[str, dict[Any, int]]:
    none = dict.fromkeys(VERDICTS, 0)
    return {"at the paper's settings": {**none, **papers}, "on other data or settings": {**none, "holds": 3}}


def test_a_reproduction_has_its_claims_as_metrics_and_in_words() -> None:
    rows = [{"id": "001.acc", "ours": {"value": 98.5, "sd": 0, "n": 1}}, {"id": "001.fig", "ours": None}]
    found = counts(within=2, **{"not run": 4})
    metrics = tracked.reproduction_metrics(rows, found)
    assert {name: value for name, value in metrics.items() if value} == {
        "claims/run": 5.0,
        "claims/within": 2.0,
        "claims/holds": 3.0,
        "claims/not_run": 4.0,
        "claims_at_papers_settings/within": 2.0,
        "claim_values/001.acc": 98.5,
    }
    assert len(metrics) == 1 + len(VERDICTS) + (len(VERDICTS) - 1) + 1


def test_the_views_show_metrics_that_runs_have() -> None:
    tags = tracked.experiment_tags("quick")
    found = {key.rpartition(".")[2]: json.loads(value) for key, value in tags.items() if "sharedViewState" in key}
    assert found.keys() == set(tracked.VIEWS)
    metrics = tracked.reproduction_metrics([], counts())
    shown = [each.split("`")[1] for each in found["reproductions"]["selectedColumns"] if each.startswith("metrics")]
    assert shown
    assert set(shown) <= metrics.keys()
    records = Path(tracked.__file__).parents[1] / "reports/quick/results"
    for view, stage in (("trainings", "train"), ("evaluations", "evaluate")):
        columns = [each.split("`")[1] for each in found[view]["selectedColumns"] if each.startswith("metrics")]
        names = {name for path in (records / stage).glob("*.json") for name in flat(load_record(path))}
        assert set(columns) <= names, "of the committed results"
