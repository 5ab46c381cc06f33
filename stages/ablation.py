"""Train and test matrix capsules with something changed (document 004, Table 1)."""

from __future__ import annotations

from statistics import fmean

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train and test every condition of STUDY, an entry of `ablation` in params.yaml."""
    with stage("ablation", study) as workspace:
        from pipeline.learning.runs import of_kind, train_run, trained_models
        from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
        from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
        from pipeline.systems.matrix_capsules.studies.ablation import ablated, measure, outcome
        from pipeline.tracking import Part

        settings = workspace.params.ablation[study]
        unchanged = workspace.params.runs[settings.run]
        assert isinstance(unchanged, MatrixCapsulesRun)  # params.yaml was checked
        setup = workspace.training_setup(workspace.choose_device())
        dataset, digest = workspace.open_dataset(unchanged.dataset)
        measured, epochs = {}, []
        for condition in settings.conditions:
            run = ablated(unchanged, settings, condition)
            title = f"{workspace.label}, {condition}"
            trained = train_run(setup, run, dataset, digest, Part(workspace.run, condition), title)
            models = of_kind(MatrixCapsules, trained_models(setup, run, dataset.images.shape[-1], trained))
            measured[condition] = measure(models, trained, dataset, run)
            epochs.append(trained.epochs)
        workspace.write(
            outcome(measured),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(unchanged.seed, unchanged.seed + settings.replicas),
            epochs=fmean(epochs),
        )


if __name__ == "__main__":
    typer.run(main)
