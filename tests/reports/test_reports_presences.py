"""Silent presences are found, and informative ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import Writer, changed, presences, recorded, scorecard, spread
from records import dump_record, load_record

from pipeline import report
from pipeline.params import Params
from pipeline.results.reading import Numbers
from pipeline.systems.generative.report.presences import silence

T0 = "000.t1.t0.0"


@pytest.mark.parametrize(
    ("classes", "information", "sampled", "log_odds", "is_silent"),
    [
        (10, 0.004, 0.11, 0.85, True),
        (10, 0.5, 0.11, 0.85, True),  # by the probes alone
        (10, None, 0.11, 0.85, True),
        (10, 2.1, 0.52, 0.85, False),
        (2, None, 0.52, 0.85, True),  # a guess is right half the time
        (10, None, 0.12, 0.20, False),  # log odds are not read either
        (10, None, 0.12, None, False),
        (10, None, None, None, False),
    ],
)
def test_presences_are_silent_where_neither_information_nor_a_probe_on_samples_says_anything(
    classes: int, information: float | None, sampled: float | None, log_odds: float | None, is_silent: bool
) -> None:
    probes = {
        features: {"refit": {"rotated_0": spread(accuracy)}}
        for features, accuracy in (("t0_binary", sampled), ("t0", log_odds))
        if accuracy is not None
    }
    test = {} if information is None else {"presence_information": spread(information)}
    assert bool(silence(Numbers(Path("made-up"), {"probe": probes, "test": test}), classes)) == is_silent


def test_a_silent_run_says_so_in_its_rows_and_in_the_table(full: Writer, params: Params) -> None:
    def table() -> dict[str, str]:
        tables = {table.name: table for table in report.build(recorded(full.results, params))}
        (row,) = tables["presences"].shown.to_dict("records")
        return {str(key): value for key, value in row.items()}

    rows = scorecard(full, params, "000")
    for claim in (T0, "000.t1.t0.180", "000.freeform.acc"):
        (said,) = (note for note in rows[claim]["notes"] if "I(t0; x)" in note)
        assert all(number in said for number in (" 78.0 %", " 91.0 %", " 2.10 nats"))
    assert not any("I(t0; x)" in note for note in rows["000.t1.vae.0"]["notes"])
    found = table()
    assert (found["run"], found["presences"]) == ("capsules-digits", "informative")
    cells = ("probe: 0 or 1 (%)", "probe: relaxed sample (%)", "probe: log odds (%)", "I(t0; x), relaxed")
    assert [found[cell] for cell in cells] == ["78.0 ± 1.2", "91.0 ± 1.2", "95.0 ± 1.2", "2.10 ± 0.03"]

    path = full.metrics / "evaluate" / "capsules-digits.json"
    record = changed(load_record(path), "probe/t0_binary/refit/rotated_0", spread(0.11))
    record["test"] |= presences(information=0.004)
    dump_record(path, record)
    rows = scorecard(full, params, "000")
    for claim in (T0, "000.freeform.acc"):
        assert any("presences carry next to no information: 0.00 nats" in note for note in rows[claim]["notes"])
    assert table()["presences"] == "silent"
