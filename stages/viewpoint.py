"""Novel viewpoints for two networks that are alike on familiar ones (document 004, Table 2)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train both networks of STUDY, an entry of `viewpoint` in params.yaml, on familiar viewpoints and match them."""
    with stage("viewpoint", study) as workspace:
        from pipeline.compute import choose_device
        from pipeline.learning.runs import train_run
        from pipeline.learning.variation import viewed
        from pipeline.studies.viewpoint_matching import errors, familiar_views, outcome
        from pipeline.tracking import Part

        params, settings = workspace.params, workspace.params.viewpoint[study]
        device = choose_device(params.device)
        dataset, digest = workspace.open_dataset(settings.dataset)
        views = familiar_views(dataset, settings.axis)
        curves = {}
        for network, name in (("capsules", settings.capsules), ("cnn", settings.cnn)):
            trained = train_run(
                viewed(params.runs[name], settings),
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
