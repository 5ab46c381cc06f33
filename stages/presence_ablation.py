"""Train probabilistic capsules with something changed, and measure what their presences say (document 000)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train and probe every condition of STUDY, an entry of `presence_ablation` in params.yaml."""
    with stage("presence_ablation", study) as workspace:
        from pipeline.learning.runs import of_kind, train_run, trained_models
        from pipeline.results.spread import stack_replicas
        from pipeline.systems.generative.model.generative_model import GenerativeModel
        from pipeline.systems.generative.settings import GenerativeRun
        from pipeline.systems.generative.studies.presence_ablation import changed, measure, outcome
        from pipeline.tracking import Part

        params = workspace.params
        settings = params.presence_ablation[study]
        unchanged = params.runs[settings.run]
        assert isinstance(unchanged, GenerativeRun)  # params.yaml was checked
        device = workspace.choose_device()
        setup = workspace.training_setup(device)
        dataset, digest = workspace.open_dataset(unchanged.dataset)
        tables, trained_settings = {}, {}
        for condition in settings.conditions:
            run = changed(unchanged, settings, condition)
            trained = train_run(
                setup, run, dataset, digest, Part(workspace.run, condition), f"{workspace.label}, {condition}"
            )
            models = of_kind(GenerativeModel, trained_models(setup, run, dataset.images.shape[-1], trained))
            tables[condition] = stack_replicas([measure(model, dataset, params.evaluate, device) for model in models])
            trained_settings[condition] = run.model_dump(mode="json")
        workspace.write(
            outcome(tables, trained_settings),
            step=settings.epochs,
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(unchanged.seed, unchanged.seed + settings.replicas),
            epochs=float(settings.epochs),
        )


if __name__ == "__main__":
    typer.run(main)
