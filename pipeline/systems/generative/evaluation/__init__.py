"""The evaluation of a trained capsule model: probes, and the failure analysis of document 000, section 5.4."""

from __future__ import annotations

from dataclasses import replace

from pipeline.learning.model import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.probes import evaluation
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, spread_each, stack_replicas
from pipeline.systems.generative.evaluation.consistency import part_use
from pipeline.systems.generative.evaluation.equivariance import equivariance
from pipeline.systems.generative.evaluation.examples import evaluation_examples, object_examples
from pipeline.systems.generative.evaluation.presences import presence_measures
from pipeline.systems.generative.evaluation.templates import template_copies
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import FailureParams

RULER = ("test.binary_information", "probe.t0_binary.refit.rotated_0")
"""The two numbers that tell whether presences carry information."""


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Probes as of every model; whether presences carry information; and pictures, also of what each object explains.

    And the failure analysis on the first test images: whether poses turn with the image (Figure 5), which templates are
    copies (Figure 6), and consistency of part use by the range of the images' rotations (degrees). That is
    the control of Figure 7: consistency falls with this range for any training if parts stay in their places while the
    images turn, so a model trained on a wide range is compared with these models on images of that range.
    """
    outcome = evaluation.evaluate(inputs)
    models, device = of_kind(GenerativeModel, inputs.models), inputs.device
    params, failures = inputs.sections["evaluate"], inputs.sections["failures"]
    assert isinstance(params, EvaluateParams)
    assert isinstance(failures, FailureParams)
    images, labels = inputs.dataset.part("test")
    few, classes = images[: failures.images], labels[: failures.images]
    turned = stack_replicas([equivariance(model, few, failures.turns, device) for model in models])
    by_measure = turned.assign(angle=turned["angle"].map("{:g}".format)).melt(
        id_vars=["replica", "layer", "angle"], var_name="measure"
    )
    templates = [template_copies(model, few, failures, device) for model in models]
    presences = spread_each([presence_measures(model, images, params.seed, device) for model in models])
    numbers = {
        **outcome.numbers,
        "test": {**outcome.numbers["test"], **presences},
        "equivariance": nest(by_measure, ["layer", "angle", "measure"], "value"),
        "templates": spread_each([copied for copied, _ in templates]),
        "part_use": {
            f"{angle:g}": spread_each(
                [part_use(model, few, classes, angle, failures.seed, device)[0] for model in models]
            )
            for angle in params.angles
        },
    }
    headline = tuple(dict.fromkeys((*RULER, *outcome.headline)))[:MOST_HEADLINES]
    examples = evaluation_examples(models[0], params.seed, device) | templates[0][1]
    objects = object_examples(models[0], images, labels, device)
    return replace(outcome, numbers=numbers, headline=headline, arrays={**examples, **objects})
