"""The numbers of line plots, for the page: accuracy over rotation, test-time optimisation, poses, sensitivity."""

from __future__ import annotations

from itertools import cycle

import pandas as pd

from pipeline.drawing.charts import CHANCE, Chart, Panel, Series, around, chart, level
from pipeline.drawing.features import look
from pipeline.drawing.style import BLUE, FAINT, INK
from pipeline.systems.generative.report.curves import (
    ACCURACY,
    BOUND,
    ENGINE_LOOKS,
    PROTOCOLS,
    TESTS,
    in_order,
    mean_over_replicas,
    name_of_engine,
    name_of_test,
    range_of_bounds,
)
from pipeline.systems.generative.report.runs import PAPER_SEEDS

_PERCENT = (0.0, 102.0)
_OWN = "the run's own value"


def accuracy_over_rotation(table: pd.DataFrame, paper: pd.DataFrame, chance: float) -> Chart:
    """As `curves.accuracy_over_rotation`."""
    tests = in_order([*table["test"], *paper["test"]])
    kinds = list(dict.fromkeys(table["features"]))
    series = [Series(f"{look(kind).name}, ours", look(kind).colour, look(kind).marker) for kind in kinds]
    series += [
        Series(f"{look(kind).name}, the paper", look(kind).colour, look(kind).marker, "", True) for kind in kinds
    ]
    parts = []
    for protocol, title in PROTOCOLS.items():
        rows = [_accuracies(table[table["protocol"] == protocol], "ours")]
        if not paper.empty:
            rows.append(_accuracies(paper.assign(n=PAPER_SEEDS), "the paper"))
        names = [name_of_test(test) for test in tests]
        rows.append(level(CHANCE, names, chance))
        panel = Panel(title, TESTS, ACCURACY, names, y_range=_PERCENT)
        parts.append((panel, pd.concat(rows, ignore_index=True)))
    return chart(parts, [*series, CHANCE])


def _accuracies(table: pd.DataFrame, whose: str) -> pd.DataFrame:
    rows = around(table)
    return pd.DataFrame(
        {
            "series": [f"{look(kind).name}, {whose}" for kind in rows["features"]],
            "x": [name_of_test(test) for test in rows["test"]],
            "y": rows["mean"].to_numpy(),
            "low": rows["low"].to_numpy(),
            "high": rows["high"].to_numpy(),
            "part": ["affine" if test == "affine" else "" for test in rows["test"]],
        }
    )


def accuracy_over_training_range(table: pd.DataFrame, chance: float) -> Chart:
    """As `curves.accuracy_over_training_range`."""
    rows = around(table).sort_values("angle")
    rows = rows.assign(series=[look(kind).name for kind in rows["features"]], x=rows["angle"], y=rows["mean"])
    kinds = dict.fromkeys(table["features"])
    panel = Panel("", "trained and tested on images rotated within ± (degrees)", ACCURACY, y_range=_PERCENT)
    series = [Series(look(kind).name, look(kind).colour, look(kind).marker) for kind in kinds]
    rows = pd.concat([rows, level(CHANCE, rows["x"].tolist(), chance)], ignore_index=True)
    return chart([(panel, rows)], [*series, CHANCE])


def optimisation(table: pd.DataFrame) -> Chart:
    """As `curves.optimisation_curves`."""
    angles = sorted({table["angle"].min(), table["angle"].max()})
    engines = list(dict.fromkeys(table["engine"]))
    words = ["upright" if angle == 0 else f"within ±{angle:g}°" for angle in angles]
    series, rows = [], []
    for engine, (colour, marker) in zip(engines, cycle(ENGINE_LOOKS), strict=False):
        for angle, name, dash in zip(angles, words, ("-", "--"), strict=False):
            chosen = table[(table["engine"] == engine) & (table["angle"] == angle) & (table["round"] > 0)]
            means = mean_over_replicas(chosen)
            label = f"{name_of_engine(engine)}, {name}"
            rows.append(means.assign(series=label, y=means["bound"]))
            series.append(Series(label, colour, marker, dash))
    data = pd.concat(rows, ignore_index=True)
    axes = {"evaluations": "gradient evaluations per image", "seconds": "seconds for all images"}
    return chart(
        [
            (
                Panel("", label, BOUND, x_log=True, y_range=range_of_bounds(table)),
                data[data[column] > 0].assign(x=data[column]),
            )
            for column, label in axes.items()
        ],
        series,
    )


def poses_over_rotation(table: pd.DataFrame, layers: dict[str, str]) -> Chart:
    """As `figures_of_failures.poses_over_rotation`."""
    parts = []
    for layer, title in layers.items():
        rows = table[table["layer"] == layer].sort_values("angle").assign(x=lambda each: each["angle"])
        measured = rows.assign(series="measured", y=rows["deviation"])
        still = rows.assign(series="poses that do not rotate", y=rows["unfollowed"], low=None, high=None)
        panel = Panel(title, "rotation of the input (degrees)", "deviation (image half widths)", from_zero=True)
        parts.append((panel, pd.concat([measured, still.astype({"low": float, "high": float})], ignore_index=True)))
    return chart(parts, [Series("measured", BLUE), Series("poses that do not rotate", INK, "", "--")], band=True)


def accuracy_over_hyperparameters(table: pd.DataFrame, words: dict[str, str]) -> Chart:
    """As `figures_of_failures.accuracy_over_hyperparameters`."""
    table = table[table["metric"] != "pixel_error"]
    rows = around(table.assign(mean=100 * table["mean"], sd=100 * table["sd"]))
    rows = rows.assign(series=[look(metric).name for metric in rows["metric"]], x=rows["value"], y=rows["mean"])
    names = dict.fromkeys(table["hyperparameter"])
    kinds = dict.fromkeys(table["metric"])
    parts = []
    for name in names:
        here = rows[rows["hyperparameter"] == name]
        own = {"series": _OWN, "x": here["own"].iloc[0], "y": [here["y"].min(), here["y"].max()], "part": "own"}
        data = pd.concat([here, pd.DataFrame(own)], ignore_index=True)
        parts.append((Panel("", words.get(name, name), ACCURACY, x_log=True), data))
    series = [Series(look(kind).name, look(kind).colour, look(kind).marker) for kind in kinds]
    return chart(parts, [*series, Series(_OWN, FAINT, "", ":")])
