"""Train and test on rotations within one angle (document 000, Figure 4)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(run: str, angle: float) -> None:
    """Train RUN, an entry of `runs` in params.yaml, on images turned within +-ANGLE degrees; probe it on the like."""
    with stage("sweep", f"{run}-{angle:g}") as workspace:
        from pipeline.compute import choose_device
        from pipeline.files import write_arrays, write_json, write_text
        from pipeline.learning.runs import train_run, trained_models
        from pipeline.learning.summary import best_validation
        from pipeline.learning.variation import swept
        from pipeline.studies.failures import part_use_analysis
        from pipeline.studies.generalisation import rotation_probes
        from pipeline.studies.summary import flat, nest, stack_replicas

        params = workspace.params
        settings = swept(params.runs[run], angle, params.sweep)
        device = choose_device(params.device)
        dataset, digest = workspace.open_dataset(settings.dataset)

        folder = workspace.resume_folder()
        trained = train_run(settings, dataset, digest, device, folder, workspace.run, workspace.label)
        models = trained_models(settings, dataset.images.shape[-1], trained, device)
        table = stack_replicas([rotation_probes(model, dataset, angle, params.evaluate, device) for model in models])
        part_use, examples = part_use_analysis(models, dataset, angle, params.failures, device)
        last = trained.history.groupby("replica")["epoch"].max()
        metrics = {
            "probe": nest(table, ["features"], "accuracy"),
            "validation": best_validation(trained.history),
            **part_use,
            "provenance": [
                workspace.provenance(
                    dataset_label=dataset.label,
                    data_sha256=digest,
                    seeds=range(settings.seed, settings.seed + settings.replicas),
                    epochs=float(last.mean()),
                )
            ],
        }
        item = f"{run}-{angle:g}"
        write_text(workspace.metrics_path("sweep", item, ".csv"), table.to_csv(index=False, float_format="%.7g"))
        write_json(workspace.metrics_path("sweep", item), metrics)
        results = workspace.results_folder("sweep", item)
        results.mkdir(parents=True, exist_ok=True)  # DVC wants it, empty for models without parts
        if examples:
            write_arrays(results / "examples.npz", examples)
        workspace.run.log_metrics(flat(metrics), step=int(last.max()))


if __name__ == "__main__":
    typer.run(main)
