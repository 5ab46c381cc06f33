"""The numbers of line plots, for the page: errors over capsule size, iterations, passes and penalties."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pipeline.drawing.charts import Chart, Panel, Series, chart
from pipeline.drawing.style import FAINT, GREEN, TRAIN, VALIDATION

SIZE = "capsule size d"
PARTS = {
    "train": Series("training", TRAIN),
    "validation": Series("validation", VALIDATION, "s", "--"),
    "test": Series("test", GREEN, "^"),
}
"""By part of a data set, as results name it: its line in a plot."""


def error_over_size(
    table: pd.DataFrame, looks: Mapping[str, tuple[str, str]], baselines: Mapping[str, tuple[str, str]]
) -> Chart:
    """As `figures.error_over_size`."""
    sizes = [str(size) for size in sorted(set(table[table["size"] > 0]["size"]))]
    series = [Series(name, colour, marker) for name, (colour, marker) in looks.items()]
    series += [Series(words, FAINT, "", dashes) for words, dashes in baselines.values()]
    parts = []
    for part in ("test", "train"):
        models = table[table["model"].isin(looks) & (table["size"] > 0)].sort_values("size")
        rows = [models.assign(series=models["model"], x=models["size"].astype(int).astype(str), y=100 * models[part])]
        if part == "test":  # a level for each other classifier
            for name, (label, _) in baselines.items():
                for value in table[table["model"] == name][part]:
                    rows.append(pd.DataFrame({"series": label, "x": [sizes[0], sizes[-1]], "y": 100 * value}))  # noqa: PERF401
        panel = Panel("", SIZE, f"{PARTS[part].name} error (%)", sizes, from_zero=True)
        parts.append((panel, pd.concat(rows, ignore_index=True)))
    return chart(parts, series)


def two_losses(
    table: pd.DataFrame,
    key: str,
    looks: Mapping[str, tuple[str, str, str]],
    x: tuple[str, str],
    error: tuple[str, str],
) -> Chart:
    """As `figures.two_losses`."""
    known = table[table[key].isin(looks)]
    rows = known.assign(series=[looks[value][0] for value in known[key]], x=known[x[0]])
    parts = [
        (Panel("", x[1], "training log-loss / log m", x_log=True, from_zero=True), rows.assign(y=rows["log_loss"])),
        (Panel("", x[1], error[1], x_log=True, from_zero=True), rows.assign(y=100 * rows[error[0]])),
    ]
    return chart(parts, [Series(name, colour, "o", dash) for name, colour, dash in looks.values()], most=60)


def over_penalties(table: pd.DataFrame) -> Chart:
    """As `figures.over_penalties`."""
    rows = table.sort_values("penalty")
    names = ["none", *(f"{value:g}" for value in rows["penalty"].iloc[1:])]
    data = [
        pd.DataFrame({"series": line.name, "x": names, "y": 100 * rows[part].to_numpy()})
        for part, line in PARTS.items()
    ]
    panel = Panel("", "penalty", "error (%)", names, from_zero=True)
    return chart([(panel, pd.concat(data, ignore_index=True))], list(PARTS.values()))
