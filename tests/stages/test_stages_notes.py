"""What MLflow shows of a run at first sight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.page.scorecard import VERDICTS
from stages import notes


def note(settings: dict[str, Any] | None = None, numbers: dict[str, float] | None = None, dirty: bool = False) -> str:
    facts = {"data": "digits | 8x8", "device": ""}
    return notes.run_note("train", "train@vae", facts, settings or {}, numbers or {}, "0123456789abcdef", dirty)


def test_a_runs_note_has_its_facts_numbers_settings_and_how_to_repeat_it() -> None:
    text = note({"runs": {"vae": {"latent": 10}}}, {"validation.bound": 417.38261})
    for line in (
        "| data | digits \\| 8x8 |",
        "| commit | `0123456789` |",
        "| validation.bound | 417.38 |",
        "git checkout 0123456789abcdef",
        "dvc repro -f -s train@vae",
        "runs.vae.latent: 10",
    ):
        assert line in text.splitlines(), line
    assert "device" not in text, "an unknown fact is left out"
    assert "`0123456789` with uncommitted changes" in note(dirty=True)
    long = note({f"setting-{index}": "a value" for index in range(10_000)}, dict.fromkeys(map(str, range(300)), 1.0))
    assert len(long) < 5000, "MLflow's limit"
    assert long.count("```") % 2 == 0


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
        **{f"claims_at_papers_settings/{verdict}": 0.0 for verdict in VERDICTS if verdict != "not run"},
        "claims_at_papers_settings/within": 2.0,
        "claim_values/001.acc": 98.5,
    }
    text = notes.reproduction_note("quick", "0123456789abcdef", True, found, [("001", "Capsules", 5, 9)])
    assert "5 of 9 claims run: 2 within, 0 better, 0 worse, 3 holds, 0 fails" in text
    assert "`0123456789` with uncommitted changes" in text
    assert "python -m pipeline compare 0123456789 ." in text


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
