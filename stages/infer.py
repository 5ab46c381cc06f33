"""Iterative inference over all layers of a trained capsule network (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `infer` in params.yaml, on its run's trained weights."""
    with stage("infer", study) as workspace:
        from tqdm import tqdm

        from pipeline.compute import choose_device
        from pipeline.errors import UserError
        from pipeline.models.capsnet import CapsNet
        from pipeline.studies.iterative_inference import sparsity_of_inference

        settings = workspace.params.infer[study]
        trained = workspace.params.runs[settings.run]
        device = choose_device(workspace.params.device)
        dataset, digest = workspace.open_dataset(trained.dataset)
        workspace.run.log_dataset(trained.dataset, dataset.label, digest)
        models = workspace.trained_models(settings.run, CapsNet, dataset.images.shape[-1], device)

        def bar(steps: range) -> range:
            return tqdm(steps, desc=workspace.label, unit="step", leave=False)  # type: ignore[return-value]

        try:
            outcome = sparsity_of_inference(models, dataset, settings, device, bar)
        except ValueError as error:
            raise UserError(f"{study}: {error}") from None

        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(trained.seed, trained.seed + trained.replicas),
        )
        workspace.write_outcome(outcome, "inference", provenance)


if __name__ == "__main__":
    typer.run(main)
