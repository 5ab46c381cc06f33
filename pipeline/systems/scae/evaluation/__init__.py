"""The evaluation of a trained model: probes, and whether presences carry information."""

from __future__ import annotations

from dataclasses import replace

from pipeline.learning.evaluation import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.probes import evaluation
from pipeline.results.outcome import Outcome
from pipeline.results.spread import spread_each
from pipeline.systems.scae.evaluation.presences import presence_measures
from pipeline.systems.scae.model.scae import SCAE


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Probes as of every model, and the information of the objects' presences."""
    outcome = evaluation.evaluate(inputs)
    images = inputs.dataset.part("test")[0]
    measured = spread_each([presence_measures(model, images, inputs.device) for model in of_kind(SCAE, inputs.models)])
    return replace(outcome, numbers={**outcome.numbers, "test": {**outcome.numbers["test"], **measured}})
