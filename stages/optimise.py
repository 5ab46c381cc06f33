"""Free-form variational optimisation of test images under a trained run."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `optimise` in params.yaml, on its run's trained weights."""
    with stage("optimise", study) as workspace:
        import time

        from tqdm import tqdm

        from pipeline.compute import choose_device
        from pipeline.files import write_arrays, write_json, write_text
        from pipeline.learning.gradient import DivergedError
        from pipeline.models.generative import GenerativeModel
        from pipeline.studies.summary import flat, nest, stack_replicas
        from pipeline.studies.test_time_inference import example_gains, optimisation_gains

        settings = workspace.params.optimise[study]
        trained = workspace.params.runs[settings.run]
        device = choose_device(workspace.params.device)
        dataset, digest = workspace.open_dataset(trained.dataset)
        workspace.run.log_dataset(trained.dataset, dataset.label, digest)
        models = workspace.trained_models(settings.run, GenerativeModel, dataset.images.shape[-1], device)
        start = time.monotonic()
        bar = tqdm(models, desc=workspace.label, unit="seed")
        gains = [optimisation_gains(model, dataset, settings, workspace.params.evaluate, device) for model in bar]
        seconds = time.monotonic() - start
        measured = stack_replicas([gain.by_angle for gain in gains])
        measured["angle"] = measured["angle"].map("{:g}".format)
        long = measured.melt(id_vars=["replica", "engine", "angle", "images"], var_name="metric")
        # Only the chosen engine has a probe of its own.
        long = long[(long["engine"] == settings.chosen) | ~long["metric"].str.startswith("refit_")]
        if long["value"].isna().any():
            raise DivergedError(f"{study}: not finite: {', '.join(long[long['value'].isna()]['metric'].unique())}")
        curves = stack_replicas([gain.curve for gain in gains])
        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(trained.seed, trained.seed + trained.replicas),
        )
        metrics = {
            "engine": nest(long, ["engine", "angle", "metric"], "value"),
            "images": min(settings.images, len(dataset.split["test"])),
            "seconds": round(seconds, 2),
            "provenance": [provenance],
        }
        write_text(workspace.metrics_path("optimise", study, ".csv"), curves.to_csv(index=False, float_format="%.7g"))
        write_json(workspace.metrics_path("optimise", study), metrics)
        examples = example_gains(models[0], dataset, settings, device)
        write_arrays(workspace.results_folder("optimise", study) / "examples.npz", examples)
        for (engine, step), rows in curves.groupby(["engine", "round"]):
            values = {
                f"bound/{engine}/{angle:g}": each for angle, each in rows.groupby("angle")["bound"].mean().items()
            }
            workspace.run.log_metrics(values, step=int(str(step)))
        workspace.run.log_metrics(flat(metrics), step=0)


if __name__ == "__main__":
    typer.run(main)
