"""Train and test on rotations within one angle (document 000, Figure 4)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(run: str, angle: str) -> None:
    """Train RUN, an entry of `runs` in params.yaml, on images rotated within +-ANGLE degrees; probe it on such images.

    ANGLE must be written as in params.yaml, because it is part of the item's name in DVC.
    """
    with stage("sweep", f"{run}-{angle}") as workspace:
        from pipeline.learning.runs import train_run, trained_models
        from pipeline.probes.sweep import SweepInputs, swept
        from pipeline.systems import sweep_of

        params, degrees = workspace.params, float(angle)
        settings = swept(params.runs[run], degrees, params.sweep)
        device = workspace.choose_device()
        setup = workspace.training_setup(device)
        dataset, digest = workspace.open_dataset(settings.dataset)
        trained = train_run(setup, settings, dataset, digest, workspace.run, workspace.label)
        models = trained_models(setup, settings, dataset.images.shape[-1], trained)
        sections = {"failures": params.failures}
        inputs = SweepInputs(models, trained, dataset, settings, degrees, params.evaluate, sections, device)
        outcome = sweep_of(settings.variant)(inputs)
        workspace.write(
            outcome,
            step=int(trained.history["epoch"].max()),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=settings.seeds,
            epochs=trained.epochs,
        )


if __name__ == "__main__":
    typer.run(main)
