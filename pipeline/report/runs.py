"""Tables of every run, of any system: unsupervised clusters, training times."""

from __future__ import annotations

from pipeline.drawing.features import look
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.findings import stalled
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import Results
from pipeline.systems import CLASSIFIERS


def build(results: Results) -> list[Table]:
    """The tables of every run. Raises `ResultError` if a result file is corrupt."""
    return [*clusters(results), *training(results)]


def clusters(results: Results) -> list[Table]:
    """Unsupervised classification: k-means clustering of the test images' features."""
    rows: list[Row] = []
    for run, numbers in results.executed("evaluate"):
        if numbers.run(run).variant in CLASSIFIERS:
            continue
        for features in numbers.names("kmeans"):
            accuracy = numbers.measured("kmeans", features)
            rows.append(([run, look(features).name], {"accuracy": accuracy.scaled(100) if accuracy else None}, numbers))
    caption = (
        "k-means with as many clusters as classes on the features of the clean test images, without labels. Accuracy "
        "(%) under the best one-to-one matching of clusters to classes."
    )
    heads = {"accuracy": ("accuracy (%)", 1)}
    return measured_table("clusters", "Clusters without labels", caption, ["run", "features"], heads, rows)


_TRAINING = {
    "epochs": ("epochs", 0),
    "seconds": ("seconds", 0),
    "parameters_generative": ("generative parameters", 0),
    "parameters_total": ("all parameters", 0),
    "images_per_second": ("images/s", 1),
    "validation_bound": ("validation bound", 1),
    "validation_pixel_error": ("validation pixel error", 1),
}


def training(results: Results) -> list[Table]:
    """Time, speed and final validation numbers of each training run, and a note on those that stopped learning."""
    rows: list[Row] = []
    for run, numbers in results.executed("train"):
        found = {column: numbers.measured(*column.split("_", 1)) for column in _TRAINING if "validation" in column}
        found |= {column: numbers.measured(column) for column in ("epochs", "images_per_second")}
        for column in ("seconds", "parameters_generative", "parameters_total"):
            number = numbers.at(*column.split("_"))  # a number of parameters is whole
            found[column] = None if number is None else Measured(number, 0.0, 1)
        history = results.table("train", run, ("replica", "epoch", "train_gradient_norm"))
        note = "" if history is None else stalled(history, numbers.run(run))
        device = ", ".join(unique(each.get("device") for each in numbers.records))
        rows.append(([run, dataset_label(numbers.records), device, note], found, numbers))
    caption = (
        "Each training run: wall-clock seconds for all seeds together, training images per second, bound in nats per "
        "image, and squared pixel error summed over an image; a note where a training stopped learning."
    )
    keys = ["run", "data", "device", "note"]
    return measured_table("training", "Training runs", caption, keys, _TRAINING, rows)
