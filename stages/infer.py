"""Iterative inference over all layers of a trained capsule network (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `infer` in params.yaml, on its run's trained weights."""
    with stage("infer", study) as workspace:
        from tqdm import tqdm

        from pipeline.compute import choose_device
        from pipeline.data.datasets import load_dataset
        from pipeline.errors import UserError
        from pipeline.files import sha256
        from pipeline.learning.runs import load_run
        from pipeline.models.capsnet import CapsNet
        from pipeline.studies.iterative_inference import sparsity_of_inference

        settings = workspace.params.infer[study]
        trained = workspace.params.runs[settings.run]
        device = choose_device(workspace.params.device)
        path = workspace.dataset_path(trained.dataset)
        dataset, digest = load_dataset(path), sha256(path)
        workspace.run.log_dataset(trained.dataset, dataset.label, digest)
        folder, size = workspace.model_folder(settings.run), dataset.images.shape[-1]
        models = [
            model for model in load_run(folder, settings.run, trained, size, device) if isinstance(model, CapsNet)
        ]

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
