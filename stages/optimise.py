"""Free-form variational optimisation of test images under a trained run."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `optimise` in params.yaml, on its run's trained weights."""
    with stage("optimise", study) as workspace:
        from pipeline.systems.generative.model.generative_model import GenerativeModel
        from pipeline.systems.generative.studies.test_time_inference import bounds_by_round, outcome

        settings = workspace.params.optimise[study]
        run = workspace.params.runs[settings.run]
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(run.dataset)
        workspace.run.log_dataset(run.dataset, dataset.label, digest)
        trained = workspace.trained_models(settings.run, GenerativeModel, dataset.images.shape[-1], device)
        models = trained[: settings.replicas]
        result = outcome(models, dataset, settings, workspace.params.evaluate, device, workspace.label)
        for step, values in bounds_by_round(result.table):
            workspace.run.log_metrics(values, step=step)
        workspace.write(result, dataset_label=dataset.label, data_sha256=digest, seeds=run.seeds[: settings.replicas])


if __name__ == "__main__":
    typer.run(main)
