"""Train at several values of one hyperparameter (document 000, appendix B)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(hyperparameter: str) -> None:
    """Train and probe the run of `sensitivity` in params.yaml at each value of HYPERPARAMETER and at the run's own."""
    with stage("sensitivity", hyperparameter) as workspace:
        from pipeline.learning.runs import train_run, trained_models
        from pipeline.results.spread import stack_replicas
        from pipeline.systems.generative.settings import GenerativeRun
        from pipeline.systems.generative.studies.sensitivity import measure, ordered_values, outcome, varied
        from pipeline.tracking import Part

        params = workspace.params
        study, run = params.sensitivity, params.runs[params.sensitivity.run]
        assert isinstance(run, GenerativeRun)  # params.yaml was checked
        device = workspace.choose_device()
        setup = workspace.training_setup(device)
        dataset, digest = workspace.open_dataset(run.dataset)
        own = getattr(run.model, hyperparameter)
        tables, trained_settings = {}, {}
        for value in ordered_values(getattr(study.hyperparameters, hyperparameter), own):
            settings = varied(run, hyperparameter, value, study)
            name = f"{hyperparameter}={value:g}"
            trained = train_run(
                setup, settings, dataset, digest, Part(workspace.run, name), f"{workspace.label}, {name}"
            )
            models = trained_models(setup, settings, dataset.images.shape[-1], trained)
            tables[value] = stack_replicas([measure(model, dataset, params.evaluate, device) for model in models])
            trained_settings[f"{value:g}"] = settings.model_dump(mode="json")
        workspace.write(
            outcome(tables, own, trained_settings),
            step=study.epochs,
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(run.seed, run.seed + study.replicas),
            epochs=float(study.epochs),
        )


if __name__ == "__main__":
    typer.run(main)
