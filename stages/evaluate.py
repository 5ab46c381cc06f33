"""Evaluate a trained run as its system defines it: probes on clean, rotated and affine images, or test errors."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(run: str) -> None:
    """Evaluate RUN, an entry of `runs` in params.yaml, from its trained weights."""
    with stage("evaluate", run) as workspace:
        from pipeline.data.affnist import build_affnist
        from pipeline.data.datasets import Dataset
        from pipeline.data.formats import AFFNIST_SIZE
        from pipeline.learning.evaluation import EvaluationInputs
        from pipeline.learning.model import Model
        from pipeline.systems import evaluation_of

        params, settings = workspace.params, workspace.params.runs[run]
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(settings.dataset)
        workspace.run.log_dataset(settings.dataset, dataset.label, digest)
        size = dataset.images.shape[-1]

        def official() -> Dataset | None:
            if not params.evaluate.official_affnist or size != AFFNIST_SIZE:
                return None
            return build_affnist(workspace.raw_folder("affnist"), params.evaluate.affine_versions)

        sections = {"evaluate": params.evaluate, "failures": params.failures}
        models = workspace.trained_models(run, Model, size, device)
        inputs = EvaluationInputs(models, dataset, settings, sections, official, device, workspace.label)
        outcome = evaluation_of(settings.variant)(inputs)
        workspace.write(outcome, dataset_label=dataset.label, data_sha256=digest, seeds=settings.seeds)


if __name__ == "__main__":
    typer.run(main)
