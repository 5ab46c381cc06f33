"""The evaluation of a trained capsule model: probes, and the failure analysis of document 000, section 5.4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.learning.evaluation import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.probes import evaluation
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import spread
from pipeline.systems.generative.evaluation.examples import evaluation_examples, object_examples
from pipeline.systems.generative.evaluation.failures import failure_analysis, part_use_by_range
from pipeline.systems.generative.evaluation.presences import presence_measures
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams

RULER = ("test.presence_information", "probe.t0_sampled.refit.rotated_0")
"""The two numbers that tell whether presences carry information."""


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Probes as of every model; whether presences carry information; whether poses turn with the image; copies among
    templates; consistency of part use; and pictures, also of what each object explains.
    """
    outcome = evaluation.evaluate(inputs)
    models, device = of_kind(GenerativeModel, inputs.models), inputs.device
    evaluate_params, failure_params = inputs.sections["evaluate"], inputs.sections["failures"]
    assert isinstance(evaluate_params, EvaluateParams)
    assert isinstance(failure_params, FailureParams)
    failures, arrays = failure_analysis(models, inputs.dataset, failure_params, device)
    failures["part_use"] = part_use_by_range(models, inputs.dataset, evaluate_params.angles, failure_params, device)
    images, labels = inputs.dataset.part("test")
    presences = [presence_measures(model, images, evaluate_params.seed, device) for model in models]
    measured = {name: spread(each[name] for each in presences) for name in presences[0]}
    numbers = {**outcome.numbers, "test": {**outcome.numbers["test"], **measured}, **failures}
    headline = tuple(dict.fromkeys((*RULER, *outcome.headline)))[:MOST_HEADLINES]
    image = images[int(np.argmax(labels == 2))]
    examples = evaluation_examples(models[0], image, evaluate_params.seed, device) | arrays
    objects = object_examples(models[0], images, labels, device)
    return replace(outcome, numbers=numbers, headline=headline, arrays={**examples, **objects})
