"""Iterative inference over all layers of a trained capsule network (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `infer` in params.yaml, on its run's trained weights."""
    with stage("infer", study) as workspace:
        from tqdm import tqdm

        from pipeline.errors import UserError
        from pipeline.systems.capsnet.model.capsnet import CapsNet
        from pipeline.systems.capsnet.studies.iterative_inference import sparsity_of_inference

        settings = workspace.params.infer[study]
        run = workspace.params.runs[settings.run]
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(run.dataset)
        workspace.run.log_dataset(run.dataset, dataset.label, digest)
        models = workspace.trained_models(settings.run, CapsNet, dataset.images.shape[-1], device)

        def bar(steps: range) -> range:
            return tqdm(steps, desc=workspace.label, unit="step", leave=False)  # type: ignore[return-value]

        try:
            outcome = sparsity_of_inference(models, dataset, settings, device, bar)
        except ValueError as error:
            raise UserError(f"{study}: {error}") from None
        workspace.write(outcome, dataset_label=dataset.label, data_sha256=digest, seeds=run.seeds)


if __name__ == "__main__":
    typer.run(main)
