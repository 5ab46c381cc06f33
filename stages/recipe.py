"""Single changes of how a network is trained, judged by objects that it is not trained on (document 004)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train the network in every condition of STUDY, an entry of `recipe` in params.yaml, and measure its errors."""
    with stage("recipe", study) as workspace:
        from statistics import fmean

        from pipeline.classification.recipe import errors, outcome
        from pipeline.classification.settings import CroppedRun
        from pipeline.learning.runs import train_run
        from pipeline.tracking import Part

        settings = workspace.params.recipe[study]
        unchanged = workspace.params.runs[settings.run]
        assert isinstance(unchanged, CroppedRun)  # params.yaml was checked
        setup = workspace.training_setup(workspace.choose_device())
        dataset, digest = workspace.open_dataset(unchanged.dataset)
        measured: dict[str, dict[int, list[dict[str, float]]]] = {}
        trained_settings = {}
        for condition in settings.conditions:
            run = settings.changed(unchanged, condition)
            trained_settings[condition] = run.model_dump(mode="json")
            measured[condition] = {}
            for value in settings.held_out:
                name = f"{condition}, {settings.factor} {value} held out"
                part = Part(workspace.run, f"{condition}-{value}")
                measured[condition][value] = errors(
                    train_run(setup, settings.without(run, value), dataset, digest, part, f"{workspace.label}, {name}")
                )
        workspace.write(
            outcome(measured, trained_settings),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=[unchanged.seed + replica for replica in range(settings.replicas)],
            epochs=fmean(run["training"]["epochs"] for run in trained_settings.values()),
        )


if __name__ == "__main__":
    typer.run(main)
