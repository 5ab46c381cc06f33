"""Train and test matrix capsules with something changed (document 004, Table 1)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(condition: str) -> None:
    """Train and test CONDITION, an entry of `ablation` in params.yaml."""
    with stage("ablation", condition) as workspace:
        from pipeline.compute import choose_device
        from pipeline.learning.runs import of_kind, train_run, trained_models
        from pipeline.learning.variation import ablated
        from pipeline.models.matrix_capsules import MatrixCapsules
        from pipeline.params import MatrixCapsulesRun
        from pipeline.studies.ablation import outcome
        from pipeline.tracking import Part

        study = workspace.params.ablation[condition]
        run = workspace.params.runs[study.run]
        assert isinstance(run, MatrixCapsulesRun)  # params.yaml was checked
        settings = ablated(run, study)
        device = choose_device(workspace.params.device)
        dataset, digest = workspace.open_dataset(run.dataset)
        part = Part(workspace.run, condition)
        trained = train_run(settings, dataset, digest, device, workspace.resume_folder(), part, condition)
        models = of_kind(MatrixCapsules, trained_models(settings, dataset.images.shape[-1], trained, device))
        found = outcome(models, trained, dataset, settings.augmentation)
        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(run.seed, run.seed + study.replicas),
            epochs=float(trained.history.groupby("replica")["epoch"].max().mean()),
        )
        workspace.write_outcome(found, "ablation", provenance)


if __name__ == "__main__":
    typer.run(main)
