"""Probe a trained run on clean, rotated and affine images; classifiers of crops: their test errors."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(run: str) -> None:
    """Evaluate RUN, an entry of `runs` in params.yaml, from its trained weights."""
    with stage("evaluate", run) as workspace:
        from dataclasses import replace

        import numpy as np
        from tqdm import tqdm

        from pipeline.compute import choose_device
        from pipeline.data.datasets import build_affnist
        from pipeline.data.formats import AFFNIST_SIZE
        from pipeline.files import write_arrays, write_json, write_text
        from pipeline.learning.runs import load_run
        from pipeline.models.classifier import Classifier
        from pipeline.models.generative import GenerativeModel
        from pipeline.params import CropParams
        from pipeline.studies import classification
        from pipeline.studies.bounds import bound_metrics
        from pipeline.studies.clusters import cluster_accuracies
        from pipeline.studies.examples import evaluation_examples
        from pipeline.studies.failures import failure_analysis
        from pipeline.studies.generalisation import probe_accuracies
        from pipeline.studies.summary import flat, nest, stack_replicas

        settings, evaluate = workspace.params.runs[run], workspace.params.evaluate
        device = choose_device(workspace.params.device)
        dataset, digest = workspace.open_dataset(settings.dataset)
        workspace.run.log_dataset(settings.dataset, dataset.label, digest)
        size = dataset.images.shape[-1]
        seeds = range(settings.seed, settings.seed + settings.replicas)
        if isinstance(settings.augmentation, CropParams):
            classifiers = workspace.trained_models(run, Classifier, size, device)
            crops = len(classifiers) * len(classification.crop_places(size, settings.augmentation.crop))
            with tqdm(total=crops * len(dataset.split["test"]), desc=workspace.label, unit="image") as crop_bar:
                outcome = classification.evaluate(classifiers, dataset, settings.augmentation, crop_bar.update)
            # By the columns that dvc.yaml plots of every evaluation.
            table = outcome.table.rename(columns={"metric": "test"})
            table["accuracy"] = 1 - table.pop("value")
            provenance = workspace.provenance(dataset_label=dataset.label, data_sha256=digest, seeds=seeds)
            workspace.write_outcome(replace(outcome, table=table), "classification", provenance)
            return

        models = load_run(workspace.model_folder(run), run, settings, size, device)
        official = None
        if evaluate.official_affnist and size == AFFNIST_SIZE:
            official = build_affnist(workspace.raw_folder("affnist"), evaluate.affine_versions)
        bar = tqdm(models, desc=workspace.label, unit="seed")
        table = stack_replicas([probe_accuracies(model, dataset, evaluate, device, official) for model in bar])
        measured = stack_replicas([bound_metrics(model, dataset, evaluate.seed, device) for model in models])
        clusters = stack_replicas([cluster_accuracies(model, dataset, evaluate.seed, device) for model in models])
        failures, template_arrays = failure_analysis(models, dataset, workspace.params.failures, device)
        write_text(workspace.metrics_path("evaluate", run, ".csv"), table.to_csv(index=False, float_format="%.7g"))
        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=seeds,
        )
        probes = nest(table, ["features", "protocol", "test"], "accuracy")
        numbers = {
            "probe": probes,
            "kmeans": nest(clusters, ["features"], "accuracy"),
            "test": nest(measured, ["metric"], "value"),
            **failures,
            "provenance": [provenance],
        }
        write_json(workspace.metrics_path("evaluate", run), numbers)
        folder = workspace.results_folder("evaluate", run)
        folder.mkdir(parents=True, exist_ok=True)  # DVC wants it, empty for models without pictures of their own
        if isinstance(models[0], GenerativeModel):
            images, labels = dataset.part("test")
            image = images[int(np.argmax(labels == 2))]
            examples = evaluation_examples(models[0], image, evaluate.seed, device) | template_arrays
            write_arrays(folder / "examples.npz", examples)
        workspace.run.log_metrics(flat(numbers), step=0)


if __name__ == "__main__":
    typer.run(main)
