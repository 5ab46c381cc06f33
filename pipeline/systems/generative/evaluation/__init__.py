"""The evaluation of a trained capsule model: probes, and the failure analysis of document 000, section 5.4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.learning.evaluation import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.probes import evaluation
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import Outcome
from pipeline.systems.generative.evaluation.examples import evaluation_examples
from pipeline.systems.generative.evaluation.failures import failure_analysis
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.studies.settings import FailureParams


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Probes as of every model; whether poses turn with the image; copies among templates; and pictures."""
    outcome = evaluation.evaluate(inputs)
    models, device = of_kind(GenerativeModel, inputs.models), inputs.device
    evaluate_params, failure_params = inputs.sections["evaluate"], inputs.sections["failures"]
    assert isinstance(evaluate_params, EvaluateParams)
    assert isinstance(failure_params, FailureParams)
    failures, arrays = failure_analysis(models, inputs.dataset, failure_params, device)
    images, labels = inputs.dataset.part("test")
    image = images[int(np.argmax(labels == 2))]
    examples = evaluation_examples(models[0], image, evaluate_params.seed, device) | arrays
    return replace(outcome, numbers={**outcome.numbers, **failures}, arrays={**examples})
