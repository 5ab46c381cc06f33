"""Errors on novel viewpoints of two networks with equal errors on familiar ones (document 004, Table 2)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train both networks of STUDY, an entry of `viewpoint` in params.yaml, on familiar viewpoints and match them."""
    with stage("viewpoint", study) as workspace:
        from pipeline.classification.viewpoint_matching import errors, familiar_views, outcome, viewed
        from pipeline.learning.runs import train_run
        from pipeline.tracking import Part

        params, settings = workspace.params, workspace.params.viewpoint[study]
        setup = workspace.training_setup(workspace.choose_device())
        dataset, digest = workspace.open_dataset(settings.dataset)
        views = familiar_views(dataset, settings.axis)
        curves, trained = {}, {}
        for network, name in (("capsules", settings.capsules), ("cnn", settings.cnn)):
            run = viewed(params.runs[name], settings)
            data, title = f"{digest} {settings.axis}", f"{study}, {network}"
            part = Part(workspace.run, network)
            history = train_run(setup, run, views.dataset, data, part, title, watched=views.watched).history
            curves[network], trained[network] = errors(history), run.model_dump(mode="json")
        images = {name: len(labels) for name, (_, labels) in views.watched.items()}
        seed = params.runs[settings.capsules].seed
        workspace.write(
            outcome(curves["capsules"], curves["cnn"], images, trained),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(seed, seed + settings.replicas),
            epochs=float(settings.epochs),
        )


if __name__ == "__main__":
    typer.run(main)
