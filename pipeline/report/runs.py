"""Tables of every run, of any system: unsupervised clusters, training times."""

from __future__ import annotations

import pandas as pd

from pipeline.drawing.features import look
from pipeline.drawing.table import Row, Table, measured_table, spread, tracked
from pipeline.results.findings import stalled
from pipeline.results.provenance import dataset_label
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


def training(results: Results) -> list[Table]:
    """Time, speed and final validation numbers of each training run, and a note on those that stopped learning."""
    rows, shown, records, notes = [], [], [], []
    for run, numbers in results.executed("train"):
        records += numbers.records
        dataset = dataset_label(numbers.records)
        device = ", ".join(dict.fromkeys(str(each.get("device", "")) for each in numbers.records))
        measured = {
            "epochs": numbers.measured("epochs"),
            "images_per_second": numbers.measured("images_per_second"),
            "validation_bound": numbers.measured("validation", "bound"),
            "validation_pixel_error": numbers.measured("validation", "pixel_error"),
        }
        seeds = max((found.n for found in measured.values() if found), default=0)
        sizes = {name: numbers.number("parameters", name) for name in ("generative", "total")}
        row: dict[str, object] = {"run": run, "variant": numbers.run(run).variant, "dataset": dataset}
        for name, found in measured.items():
            row[name], row[f"{name}_sd"] = (found.mean, found.sd) if found else (None, None)
        row["seconds"] = numbers.number("seconds")
        row |= {f"parameters_{name}": None if size is None else round(size) for name, size in sizes.items()}
        rows.append(row | {"n": seeds, "device": device, "tracking_run": tracked(numbers.records)})
        history = results.table("train", run, ("replica", "epoch", "train_gradient_norm"))
        notes.append("" if history is None else stalled(history, numbers.run(run)))
        text = {name: spread(found.mean, found.sd, found.n) if found else "" for name, found in measured.items()}
        if (epochs := measured["epochs"]) and epochs.sd == 0:  # no replica stopped early
            text["epochs"] = f"{epochs.mean:,.0f}"
        whole = ("" if value is None else f"{value:,.0f}" for value in (numbers.number("seconds"), *sizes.values()))
        shown.append([run, dataset, device, str(seeds), text.pop("epochs"), *whole, *text.values()])
    if not rows:
        return []
    head = ["run", "data", "device", "seeds", "epochs", "seconds", "generative parameters", "all parameters"]
    head += ["images/s", "validation bound", "validation pixel error"]
    people = pd.DataFrame(shown, columns=head)
    if any(notes):
        people["note"] = notes
    caption = (
        "Each training run: wall-clock seconds for all seeds together, training images per second, bound in nats per "
        "image, and squared pixel error summed over an image (mean ± sd over seeds)."
    )
    return [Table("training", "Training runs", caption, pd.DataFrame(rows), people, records)]
