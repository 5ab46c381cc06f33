"""Evaluate a trained run with what its system defines: probes on clean, rotated and affine images, or test errors."""

from pipeline.context import Context
from pipeline.data.datasets import Dataset
from pipeline.layout import raw_folder
from pipeline.results.outcome import Outcome


def measure(context: Context) -> Outcome:
    """Evaluate an entry of `runs`, with its trained weights."""
    from pipeline.data.affnist import AFFNIST_SIZE, build_affnist
    from pipeline.learning.model import EvaluationInputs, Model
    from pipeline.systems import SYSTEMS

    params, run = context.params, context.params.runs[context.item]
    dataset = context.evaluated(run.dataset)

    def official() -> Dataset | None:
        if not params.evaluate.official_affnist or dataset.images.shape[-1] != AFFNIST_SIZE:
            return None
        return build_affnist(raw_folder(context.root, "affnist"), params.evaluate.affine_versions)

    sections = {"evaluate": params.evaluate, "failures": params.section("failures")}
    models = context.models(context.item, Model)
    inputs = EvaluationInputs(models, dataset, run, sections, official, context.device, context.label)
    return SYSTEMS[run.variant].part("evaluation").evaluate(inputs)
