"""Iterative inference over all layers of a trained capsule network (document 001)."""

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.shared_params import SharedParams
from pipeline.systems.capsnet.settings import InferParams

SETTINGS = InferParams


def check(params: SharedParams, where: str, study: InferParams) -> None:
    """Raise ValueError if the study's `run` is missing, or is not a run of capsnet."""
    params.run_of(f"{where}.run", study.run, "capsnet")


def measure(context: Context) -> Outcome:
    """Measure how sparse a trained CapsNet's capsules are after inference. Raises `UserError` if inference diverges."""
    from pipeline.systems.capsnet.experiments.iterative_inference import sparsity_of_inference
    from pipeline.systems.capsnet.model.capsnet import CapsNet

    settings: InferParams = context.settings
    dataset = context.evaluated(context.params.runs[settings.run].dataset)
    models = context.models(settings.run, CapsNet)
    return sparsity_of_inference(models, dataset, settings, context.device, context.label)
