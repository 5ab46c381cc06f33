"""Train every replica of one run: `models/<run>/`, and its metrics."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(run: str) -> None:
    """Train RUN, an entry of `runs` in params.yaml, from its preprocessed data set."""
    with stage("train", run) as workspace:
        from pipeline.compute import choose_device
        from pipeline.files import write_json
        from pipeline.learning.runs import WEIGHTS, save_run, train_run
        from pipeline.learning.summary import summarise, write_history

        settings = workspace.params.runs[run]
        dataset, digest = workspace.open_dataset(settings.dataset)

        trained = train_run(
            settings,
            dataset,
            digest,
            choose_device(workspace.params.device),
            workspace.resume_folder(),
            workspace.run,
            workspace.label,
        )
        size = dataset.images.shape[-1]
        save_run(workspace.model_folder(run), run, settings, size, digest, trained)
        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(settings.seed, settings.seed + settings.replicas),
            epochs=float(trained.history.groupby("replica")["epoch"].max().mean()),
        )
        summary = summarise(trained, settings, size, provenance)
        write_history(workspace.metrics_path("train", run, ".csv"), trained.history)
        write_json(workspace.metrics_path("train", run), summary)
        workspace.run.log_artifact(workspace.model_folder(run) / WEIGHTS, "weights")


if __name__ == "__main__":
    typer.run(main)
