"""Parameters of the short reproduction."""

from __future__ import annotations

import yaml
from script_modules import SCRIPTS, load

from pipeline.params import parse_params
from pipeline.profiles import Profiles


def test_shortened_parameters_are_valid_and_have_a_run_of_every_system() -> None:
    params = yaml.safe_load(Profiles(SCRIPTS.parent).params_path("quick").read_text(encoding="utf-8"))
    before = parse_params(params)
    script = load("shorten")
    script.leave_out_similar_runs(params)
    after = parse_params(script.shorten(params))
    variants = [run.variant for run in after.runs.values()]
    assert len(set(variants)) == len(variants)
    assert set(variants) == {run.variant for run in before.runs.values()}
    assert all(run.training.epochs <= 2 for run in after.runs.values())
    assert all(getattr(after, stage) for stage in ("optimise", "posterior", "infer", "routing", "ablation", "attack"))
