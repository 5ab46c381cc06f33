"""Equivariance and invariance of a trained run, measured in the same way for every system (document 003)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Measure STUDY, an entry of `equivariance` in params.yaml, on its run's trained weights."""
    with stage("equivariance", study) as workspace:
        from functools import partial

        import torch

        from pipeline.learning.model import Model
        from pipeline.learning.settings import CropParams
        from pipeline.probes.equivariance.study import Images, outcome, started
        from pipeline.probes.equivariance.transformations import View
        from pipeline.systems import build_model, equivariance_of

        settings = workspace.params.equivariance[study]
        run = workspace.params.runs[settings.run]
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(run.dataset)
        workspace.run.log_dataset(run.dataset, dataset.label, digest)
        size = dataset.images.shape[-1]
        models = workspace.trained_models(settings.run, Model, size, device)
        crop = run.augmentation.crop if isinstance(run.augmentation, CropParams) else None
        counts = {"train": settings.fit_images, "test": settings.images}
        fit, test = (
            torch.from_numpy(dataset.part(part)[0][:count]).to(device).float() / 255 for part, count in counts.items()
        )
        images = Images(fit, test, View(crop))
        torch.manual_seed(settings.seed)
        untrained = started(build_model(run, size).to(device), images.view.seen(fit))
        read = equivariance_of(run.variant)
        result = outcome(models, untrained, lambda model: partial(read, model), images, settings, workspace.label)
        workspace.write(result, dataset_label=dataset.label, data_sha256=digest, seeds=run.seeds)


if __name__ == "__main__":
    typer.run(main)
