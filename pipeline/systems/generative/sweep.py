"""The measurements of the sweep over rotations for capsules: probes, and consistency of part use (Figure 7)."""

from __future__ import annotations

from dataclasses import replace

from pipeline.learning.runs import of_kind
from pipeline.probes import sweep as probes
from pipeline.probes.sweep import SweepInputs
from pipeline.results.outcome import Outcome
from pipeline.systems.generative.evaluation.failures import part_use_analysis
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams


def sweep(inputs: SweepInputs) -> Outcome:
    """Accuracies of probes, consistency of part use, copies among templates."""
    outcome = probes.sweep(inputs)
    models = of_kind(GenerativeModel, inputs.models)
    failures = inputs.sections["failures"]
    assert isinstance(failures, FailureParams)
    part_use, arrays = part_use_analysis(models, inputs.dataset, inputs.angle, failures, inputs.device)
    return replace(outcome, numbers={**outcome.numbers, **part_use}, arrays={**arrays})
