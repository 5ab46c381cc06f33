"""All systems side by side: every trained model with its test error, its parameters and its training time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from pipeline.drawing.charts import Chart, Panel, Series, around, chart
from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, in_house_style, look, panels
from pipeline.results.reading import Measured, Numbers, Record, Results, dataset_label
from pipeline.systems import CLASSIFIERS
from pipeline.systems.regression.report.studies import executed

NAMES = {
    "generative": "probabilistic capsules",
    "scae": "SCAE",
    "vae": "VAE",
    "capsnet": "CapsNet",
    "matrix_capsules": "matrix capsules",
    "cnn": "CNN",
    "regression": "capsule regression",
}
"""The systems, in the order in which they are shown."""
LOOKS = {
    "generative": (VERMILLION, "s"),
    "scae": (ORANGE, "P"),
    "vae": (GREEN, "^"),
    "capsnet": (SKY, "D"),
    "matrix_capsules": (BLUE, "o"),
    "cnn": (PURPLE, "v"),
    "regression": (INK, "X"),
}
_SAMPLED = "_sampled"


@dataclass(frozen=True)
class Entry:
    """One trained model.

    Attributes:
        error: test error in percent.
        how: what classifies: the model itself, or a linear probe on its features.
        features: the key of the features that a probe classifies best by; empty if no probe was fitted.
        source: of its images.
    """

    run: str
    system: str
    error: Measured
    how: str
    features: str
    source: str
    parameters: float
    seconds: float | None
    records: list[Record]


def entries(results: Results) -> list[Entry]:
    """Every model whose test error and parameters are known, sorted by system.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    found = [*_trained(results), *_regressions(results)]
    order = list(NAMES)
    return sorted(found, key=lambda each: order.index(each.system) if each.system in order else len(order))


def _trained(results: Results) -> Iterator[Entry]:
    for run, evaluated in results.executed("evaluate"):
        trained = results.numbers("train", run)
        parameters = trained.number("parameters", "total") if trained else None
        error = _error(evaluated, evaluated.run(run).variant)
        if trained is None or parameters is None or error is None:
            continue
        records = [*trained.records, *evaluated.records]
        seconds = trained.number("seconds")
        source = str(evaluated.dataset_of(run).source)
        features = _best_features(evaluated)
        yield Entry(run, evaluated.run(run).variant, *error, features, source, parameters, seconds, records)


def _error(numbers: Numbers, variant: str) -> tuple[Measured, str] | None:
    """The error on clean test images (percent), and what classifies: of several probes, the best."""
    if variant in CLASSIFIERS:
        accuracy, error = numbers.measured("test", "accuracy"), numbers.measured("test", "centre")
        own = accuracy.as_error() if accuracy else error.scaled(100) if error else None
        return (own, "itself") if own else None
    best = _best_features(numbers)
    accuracy = numbers.measured("probe", best, "refit", "rotated_0")
    return (accuracy.as_error(), f"linear probe on {look(best).name}") if accuracy else None


def _best_features(numbers: Numbers) -> str:
    """Of several sets of features, those whose probe is best on clean test images; empty if there is none."""
    probes = {
        features: measured
        for features in numbers.names("probe")
        if not features.endswith(_SAMPLED)
        and (measured := numbers.measured("probe", features, "refit", "rotated_0")) is not None
    }
    return max(probes, key=lambda features: probes[features].mean, default="")


def _regressions(results: Results) -> Iterator[Entry]:
    """Of each grid, and each way to decide, the model with the largest capsules."""
    for study in executed(results):
        table = study.table(("model", "size", "test", "parameters", "seconds")) if study.kind == "grid" else None
        if table is None:
            continue
        models = table[table["size"] > 0].sort_values("size").groupby("model", sort=False).last()
        for model, row in models.iterrows():
            error = Measured(100 * float(row["test"]), 0.0, 1)
            name = f"{study.name}, {model}, d = {int(row['size'])}"
            records = study.numbers.records
            size, seconds = float(row["parameters"]), float(row["seconds"])
            yield Entry(name, "regression", error, "itself", "", study.source, size, seconds, records)


def draw(results: Results) -> Iterator[Drawing]:
    """Error against parameters, a panel for each data set. Raises `ResultError` as `entries`."""
    found = entries(results)
    if not found:
        return
    table = _table(found)
    names = ", ".join(dict.fromkeys(table["series"]))
    yield Drawing(
        "systems-parameters",
        "svg",
        "Test error against the number of parameters",
        "Further left is smaller, further down is better; a point is a trained model, bars are one sd over seeds. "
        "Models that learned without labels are classified by the best of their linear probes.",
        f"Scatter plots of test error over parameters, one for each data set, with a marker for each of {names}.",
        [record for each in found for record in each.records],
        partial(error_over_parameters, table),
        chart=parameters_chart(table),
    )


def _table(found: list[Entry]) -> pd.DataFrame:
    rows = [
        (NAMES.get(each.system, each.system), each.system, each.parameters, dataset_label(each.records), each.error)
        for each in found
    ]
    table = pd.DataFrame(rows, columns=["series", "system", "x", "dataset", "error"])
    for name in ("mean", "sd", "n"):
        table[name] = [getattr(error, name) for error in table["error"]]
    return around(table).assign(y=table["mean"])


@in_house_style
def error_over_parameters(table: pd.DataFrame) -> Figure:
    """Test error (percent) over parameters.

    Args:
        table: columns series, system, x, y, low, high and dataset, a row for each model.
    """
    datasets = list(dict.fromkeys(table["dataset"]))
    figure, axes = panels(len(datasets), 2.6)
    for axis, dataset in zip(axes, datasets, strict=True):
        for system, rows in table[table["dataset"] == dataset].groupby("system", sort=False):
            colour, marker = LOOKS.get(str(system), (INK, "o"))
            bars = rows["y"] - rows["low"]
            axis.errorbar(
                rows["x"], rows["y"], bars, color=colour, marker=marker, linestyle="", label=rows["series"].iloc[0]
            )
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set(xlabel="parameters", title=dataset)
        axis.set_ylim(0, 1.06 * axis.get_ylim()[1])  # no marker lies on the frame
    axes[0].set_ylabel("test error (%)")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    return figure


def parameters_chart(table: pd.DataFrame) -> Chart:
    """The numbers of `error_over_parameters`."""
    parts = [
        (Panel(dataset, "parameters", "test error (%)", x_log=True, from_zero=True), table[table["dataset"] == dataset])
        for dataset in dict.fromkeys(table["dataset"])
    ]
    return chart(parts, [Series(NAMES[system], *look, "") for system, look in LOOKS.items()])
