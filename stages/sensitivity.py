"""Train at several values of one hyperparameter (document 000, appendix B)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(hyperparameter: str) -> None:
    """Train and probe the run of `sensitivity` in params.yaml at each value of HYPERPARAMETER, and at its own."""
    with stage("sensitivity", hyperparameter) as workspace:
        import pandas as pd

        from pipeline.compute import choose_device
        from pipeline.files import write_json, write_text
        from pipeline.learning.runs import train_run, trained_models
        from pipeline.learning.variation import varied
        from pipeline.params import GenerativeRun
        from pipeline.studies.sensitivity import ordered_values, outcome
        from pipeline.studies.summary import flat, nest, stack_replicas
        from pipeline.tracking import Part

        params = workspace.params
        study, run = params.sensitivity, params.runs[params.sensitivity.run]
        assert isinstance(run, GenerativeRun)  # params.yaml was checked
        device = choose_device(params.device)
        dataset, digest = workspace.open_dataset(run.dataset)
        own = getattr(run.model, hyperparameter)
        tables = []
        for value in ordered_values(getattr(study.hyperparameters, hyperparameter), own):
            settings = varied(run, hyperparameter, value, study)
            name = f"{hyperparameter}={value:g}"
            part = Part(workspace.run, name)
            trained = train_run(settings, dataset, digest, device, workspace.resume_folder(), part, name)
            models = trained_models(settings, dataset.images.shape[-1], trained, device)
            outcomes = [outcome(model, dataset, params.evaluate, device) for model in models]
            tables.append(stack_replicas(outcomes).assign(value=f"{value:g}"))
        table = pd.concat(tables, ignore_index=True)
        metrics = {
            "own": own,
            "value": nest(table, ["value", "metric"], "measured"),
            "provenance": [
                workspace.provenance(
                    dataset_label=dataset.label,
                    data_sha256=digest,
                    seeds=range(run.seed, run.seed + study.replicas),
                    epochs=float(study.epochs),
                )
            ],
        }
        write_text(
            workspace.metrics_path("sensitivity", hyperparameter, ".csv"),
            table.to_csv(index=False, float_format="%.7g"),
        )
        write_json(workspace.metrics_path("sensitivity", hyperparameter), metrics)
        workspace.run.log_metrics(flat(metrics), step=study.epochs)


if __name__ == "__main__":
    typer.run(main)
