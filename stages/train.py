"""Train every replica of one run: `models/<run>/`, and its metrics."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(run: str) -> None:
    """Train RUN, an entry of `runs` in params.yaml, from its preprocessed data set."""
    with stage("train", run) as workspace:
        from pipeline.classification.settings import CroppedRun
        from pipeline.data.holdout import watch_tests
        from pipeline.learning.runs import save_run, train_run
        from pipeline.learning.summary import outcome

        settings = workspace.params.runs[run]
        dataset, digest = workspace.open_dataset(settings.dataset)
        setup = workspace.training_setup(workspace.choose_device())
        watched = watch_tests(dataset, settings.watched) if isinstance(settings, CroppedRun) else None
        trained = train_run(setup, settings, dataset, digest, workspace.run, workspace.label, watched=watched)
        size, folder = dataset.images.shape[-1], workspace.model_folder(run)
        save_run(folder, run, settings, size, digest, setup.code(settings.variant), trained)
        workspace.write(
            outcome(trained, setup.build(settings, size)),
            step=int(trained.history["epoch"].max()),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=settings.seeds,
            epochs=trained.epochs,
        )


if __name__ == "__main__":
    typer.run(main)
