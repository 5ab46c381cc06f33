"""Evaluate a trained run as its system defines: by probes on clean, rotated and affine images, or by test errors."""

from pipeline.context import Context
from pipeline.layout import raw_folder
from pipeline.results.outcome import Outcome


def measure(context: Context) -> Outcome:
    """Evaluate an entry of `runs`, with its trained weights."""
    from pipeline.data.affnist import AFFNIST_SIZE, read_affnist
    from pipeline.learning.model import EvaluationInputs, Model
    from pipeline.systems import SYSTEMS

    params, run = context.params, context.params.runs[context.item]
    dataset, official = context.evaluated(run.dataset), None
    if params.evaluate.official_affnist and dataset.images.shape[-1] == AFFNIST_SIZE:
        official = read_affnist(raw_folder(context.root, "affnist"), params.evaluate.affine_versions)
    models = context.models(context.item, Model)
    inputs = EvaluationInputs(models, dataset, run, params, context.device, context.label, official)
    return SYSTEMS[run.variant].part("evaluation").evaluate(inputs)
