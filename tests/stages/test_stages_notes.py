"""What MLflow shows of a run at first sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.page.scorecard import VERDICTS
from stages import notes


def counts(**papers: int) -> dict[str, dict[Any, int]]:
    none = dict.fromkeys(VERDICTS, 0)
    return {"at the paper's settings": {**none, **papers}, "on other data or settings": {**none, "holds": 3}}


def test_a_reproduction_has_its_claims_as_metrics_and_in_words() -> None:
    rows = [{"id": "001.acc", "ours": {"value": 98.5, "sd": 0, "n": 1}}, {"id": "001.fig", "ours": None}]
    found = counts(within=2, **{"not run": 4})
    metrics = notes.reproduction_metrics(rows, found)
    assert metrics == {
        "claims/run": 5.0,
        **{f"claims/{verdict.replace(' ', '_')}": 0.0 for verdict in VERDICTS},
        "claims/within": 2.0,
        "claims/holds": 3.0,
        "claims/not_run": 4.0,
        **{
            f"claims_at_papers_settings/{verdict.replace(' ', '_')}": 0.0
            for verdict in VERDICTS
            if verdict != "not run"
        },
        "claims_at_papers_settings/within": 2.0,
        "claim_values/001.acc": 98.5,
    }


def test_the_views_show_metrics_that_runs_have() -> None:
    tags = notes.experiment_tags("quick")
    found = {key.rpartition(".")[2]: json.loads(value) for key, value in tags.items() if "sharedViewState" in key}
    assert found.keys() == set(notes.VIEWS)
    metrics = notes.reproduction_metrics([], counts())
    shown = [each.split("`")[1] for each in found["reproductions"]["selectedColumns"] if each.startswith("metrics")]
    assert shown
    assert set(shown) <= metrics.keys()
    records = Path(notes.__file__).parents[1] / "reports/quick/results"
    for view, stage in (("trainings", "train"), ("evaluations", "evaluate")):
        columns = [each.split("`")[1] for each in found[view]["selectedColumns"] if each.startswith("metrics")]
        names = {name for path in (records / stage).glob("*.json") for name in _named(json.loads(path.read_text()))}
        assert set(columns) <= names, "of the committed results"


def _named(result: dict[str, Any]) -> set[str]:
    from pipeline.results.spread import flat

    return set(flat(result["record"][0]))
