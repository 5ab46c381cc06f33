"""Train and test matrix capsules with something changed (document 004, Table 1)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(condition: str) -> None:
    """Train and test CONDITION, an entry of `ablation` in params.yaml."""
    with stage("ablation", condition) as workspace:
        from pipeline.learning.runs import of_kind, train_run, trained_models
        from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
        from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
        from pipeline.systems.matrix_capsules.studies.ablation import ablated, outcome
        from pipeline.tracking import Part

        study = workspace.params.ablation[condition]
        run = workspace.params.runs[study.run]
        assert isinstance(run, MatrixCapsulesRun)  # params.yaml was checked
        run = ablated(run, study)
        setup = workspace.training_setup(workspace.choose_device())
        dataset, digest = workspace.open_dataset(run.dataset)
        trained = train_run(setup, run, dataset, digest, Part(workspace.run, condition), condition)
        models = of_kind(MatrixCapsules, trained_models(setup, run, dataset.images.shape[-1], trained))
        workspace.write(
            outcome(models, trained, dataset, run),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=run.seeds,
            epochs=trained.epochs,
        )


if __name__ == "__main__":
    typer.run(main)
