"""Novel viewpoints for two networks that are alike on familiar ones (document 004, Table 2)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train both networks of STUDY, an entry of `viewpoint` in params.yaml, on familiar viewpoints and match them."""
    with stage("viewpoint", study) as workspace:
        from pipeline.compute import choose_device
        from pipeline.data.datasets import load_dataset
        from pipeline.files import sha256
        from pipeline.learning.runs import train_run
        from pipeline.learning.variation import with_epochs
        from pipeline.studies.viewpoint_matching import errors, familiar_views, outcome
        from pipeline.tracking import Part

        params, settings = workspace.params, workspace.params.viewpoint[study]
        device = choose_device(params.device)
        path = workspace.dataset_path(settings.dataset)
        dataset, digest = load_dataset(path), sha256(path)
        views = familiar_views(dataset, settings.axis)
        curves = {}
        for network, name in (("capsules", settings.capsules), ("cnn", settings.cnn)):
            changes = {"dataset": settings.dataset, "replicas": settings.replicas}
            run = with_epochs(params.runs[name], settings.epochs).model_copy(update=changes)
            # Where both networks are read is found afterwards: none may stop before.
            run = run.model_copy(update={"training": run.training.model_copy(update={"patience": settings.epochs})})
            trained = train_run(
                run,
                views.dataset,
                f"{digest} {settings.axis}",
                device,
                workspace.resume_folder(),
                Part(workspace.run, network),
                f"{study}, {network}",
                watched=views.watched,
            )
            curves[network] = errors(trained.history)
        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(params.runs[settings.capsules].seed, params.runs[settings.capsules].seed + settings.replicas),
            epochs=float(settings.epochs),
        )
        workspace.write_outcome(outcome(curves["capsules"], curves["cnn"]), "viewpoint", provenance)


if __name__ == "__main__":
    typer.run(main)
