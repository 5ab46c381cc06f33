"""The routing iterations of a trained capsule network, one by one."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Follow the routing of STUDY, an entry of `routing` in params.yaml, on its run's trained weights."""
    with stage("routing", study) as workspace:
        from functools import partial

        import torch

        from pipeline.classification.routing import outcome
        from pipeline.layers.images import centre_crop
        from pipeline.learning.model import Model
        from pipeline.learning.settings import CropParams
        from pipeline.systems import routing_of

        settings = workspace.params.routing[study]
        run = workspace.params.runs[settings.run]
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(run.dataset)
        workspace.run.log_dataset(run.dataset, dataset.label, digest)
        models = workspace.trained_models(settings.run, Model, dataset.images.shape[-1], device)
        images, labels = dataset.part("test")
        pixels = torch.from_numpy(images[: settings.images]).to(device).float() / 255
        if isinstance(run.augmentation, CropParams):
            pixels = centre_crop(pixels, run.augmentation.crop)
        follow, iterations_of = routing_of(run.variant)
        routed = [partial(follow, model, settings.iterations) for model in models]
        result = outcome(routed, iterations_of(models[0]), pixels, labels[: settings.images])
        workspace.write(result, dataset_label=dataset.label, data_sha256=digest, seeds=run.seeds)


if __name__ == "__main__":
    typer.run(main)
