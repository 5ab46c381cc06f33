"""Measures probes and consistency of part use in the sweep over rotations (document 000, Figures 4 and 7)."""

from dataclasses import replace

from pipeline.learning.model import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.learning.train import Trained
from pipeline.probes import sweep as probes
from pipeline.results.outcome import Outcome
from pipeline.results.spread import spread
from pipeline.systems.generative.evaluation.consistency import part_use
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams


def sweep(inputs: EvaluationInputs, trained: Trained) -> Outcome:
    """Add the consistency of part use and the first replica's arrays of `part_use` to the outcome of `probes.sweep`."""
    outcome = probes.sweep(inputs, trained)
    failures: FailureParams = inputs.params.section("failures")
    images, classes = inputs.dataset.part("test")
    images, classes = images[: failures.images], classes[: failures.images]
    models, angle = of_kind(GenerativeModel, inputs.models), inputs.run.augmentation.rotation
    used = [part_use(model, images, classes, angle, failures.seed) for model in models]
    numbers = {**outcome.numbers, "consistency": spread(found for found, _ in used)}
    return replace(outcome, numbers=numbers, arrays={**used[0][1]})
