"""Train on shares of the images, with as many steps as on all of them."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Train and test the run of STUDY, an entry of `data_efficiency` in params.yaml, on each share of its images."""
    with stage("data_efficiency", study) as workspace:
        from pipeline.files import json_sha256
        from pipeline.learning.runs import train_run, trained_models
        from pipeline.probes.data_efficiency import measure, outcome, share_of, with_share
        from pipeline.results.spread import stack_replicas
        from pipeline.tracking import Part

        params = workspace.params
        settings = params.data_efficiency[study]
        unchanged = params.runs[settings.run]
        device = workspace.choose_device()
        setup = workspace.training_setup(device)
        dataset, digest = workspace.open_dataset(unchanged.dataset)
        tables, images, trained_settings = {}, {}, {}
        for share in settings.shares:
            part, name = share_of(dataset, share), f"share={share:g}"
            images[share] = len(part.split["train"])
            run = with_share(unchanged, settings, images[share], len(dataset.split["train"]))
            part_digest = digest if share == 1 else json_sha256({"data": digest, "share": share})
            trained = train_run(setup, run, part, part_digest, Part(workspace.run, name), f"{workspace.label}, {name}")
            models = trained_models(setup, run, dataset.images.shape[-1], trained)
            tables[share] = stack_replicas([measure(model, run, part, params.evaluate, device) for model in models])
            trained_settings[f"{share:g}"] = run.model_dump(mode="json")
        workspace.write(
            outcome(tables, images, trained_settings),
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(unchanged.seed, unchanged.seed + settings.replicas),
            epochs=float(settings.epochs),
        )


if __name__ == "__main__":
    typer.run(main)
