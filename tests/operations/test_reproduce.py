"""Several items at once in one repository: the same as `dvc repro`, and one failure stops only what needs it."""

from __future__ import annotations

from pathlib import Path

import yaml
from clones import executed, restored
from short_stages import make

from pipeline.operations.reproduce import PlannedItem, grouped


def test_two_at_once_leave_what_dvc_leaves_alone(tmp_path: Path) -> None:
    """A third could run at once, but needs both."""
    made = make(
        tmp_path, {"download": [], "left": ["download"], "right": [], "last": ["left", "right"], "tables": ["last"]}
    )
    output = made.run("pipeline", "repro", "--jobs", "3")
    assert sorted(executed(output)) == sorted(made.runs()) == ["download", "last", "left", "right", "tables"]
    assert output.index("this is left") < output.index("Running stage 'last'"), "what stages print is shown as it comes"
    assert (made.folder / "out/last").read_text() == "last1left1download1right1download1"
    again = made.run("pipeline", "repro")
    assert executed(again) == restored(again) == []
    assert "Data and pipelines are up to date." in again


def test_a_failure_stops_only_what_needs_it(tmp_path: Path) -> None:
    made = make(tmp_path, {"train": [], "bad": ["train"], "after": ["bad"], "good": [], "tables": ["after", "good"]})
    path = made.folder / "dvc.yaml"
    stages = yaml.safe_load(path.read_text())["stages"]
    stages["train"] = {"foreach": ["run"], "do": stages["train"]}  # train@run and its studies are one group
    path.write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    made.fail("bad")
    code, output = made.attempt("pipeline", "repro", "--jobs", "2")
    assert code == 1
    assert "bad cannot work" in output
    assert {line.split(" failed, or")[0] for line in output.splitlines() if " failed, or" in line} == {"bad", "after"}
    assert made.runs() == {"train": 1, "bad": 1, "good": 1}
    made.fail("bad", fails=False)
    made.run("pipeline", "repro", "after")
    assert made.runs() == {"train": 1, "after": 1, "bad": 2, "good": 1}


def test_a_run_and_its_studies_are_one_group_and_studies_of_two_runs_wait_for_both() -> None:
    needs = {
        "preprocess@mnist": (),
        "train@vae": ("preprocess@mnist",),
        "evaluate@vae": ("preprocess@mnist", "train@vae"),
        "train@cnn": ("preprocess@mnist",),
        "attack@both": ("preprocess@mnist", "train@vae", "train@cnn"),
        "regression@mnist": ("preprocess@mnist",),
        "figures": ("train@vae", "train@cnn", "evaluate@vae", "attack@both", "regression@mnist"),
    }
    plan = {name: PlannedItem(frozenset(needed), frozenset(), True, ()) for name, needed in needs.items()}
    plan["train@old"] = PlannedItem(frozenset(), frozenset(), False, ())
    groups, waits = grouped(plan)
    together = ["train@vae", "evaluate@vae"]
    assert [*groups.values()] == [together, ["train@cnn"], ["attack@both"], ["regression@mnist"]]
    vae, cnn, both, regression = groups
    assert waits == {vae: set(), cnn: set(), both: {vae, cnn}, regression: set()}
