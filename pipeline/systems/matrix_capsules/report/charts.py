"""The numbers of line plots, for the page: errors as networks learn, and under attack."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pipeline.drawing.charts import CHANCE, Chart, Panel, Series, chart, level
from pipeline.systems.matrix_capsules.report.claims import NETWORKS
from pipeline.systems.matrix_capsules.report.claims_of_attacks import METHODS
from pipeline.systems.matrix_capsules.report.curves import KINDS, LINEAR_ERROR, LOOKS, linear_epsilon, looks

Tables = Mapping[str, tuple[bool, pd.DataFrame]]


def accuracies(tables: Tables) -> Chart:
    """As `curves.accuracies`."""
    parts = []
    for title in ("training", "validation"):
        rows = []
        for name, (_, table) in tables.items():
            means = 100 * (1 - table.groupby("epoch")[f"{title}_accuracy".replace("training", "train")].mean())
            rows.append(pd.DataFrame({"series": name, "x": means.index, "y": means.to_numpy()}))
        panel = Panel(title, "epoch", "error (%)", y_symlog=LINEAR_ERROR, from_zero=True)
        parts.append((panel, pd.concat(rows, ignore_index=True)))
    return chart(parts, [Series(name, look["color"], dash=look["linestyle"]) for name, look in looks(tables)])


def attacks(table: pd.DataFrame, chance: float) -> Chart:
    """As `curves.attacks`."""
    parts, linear = [], linear_epsilon(table["epsilon"])
    for kind, (title, words) in KINDS.items():
        rows = table[table["kind"] == kind]
        if rows.empty:
            continue
        spread = rows.groupby(["network", "method", "epsilon"])["value"].agg(["mean", "std"]).reset_index()
        names = [f"{NETWORKS[a]}, {b}" for a, b in zip(spread["network"], spread["method"], strict=True)]
        mean, sd = 100 * spread["mean"], 100 * spread["std"]
        rows = spread.assign(series=names, x=spread["epsilon"], y=mean, low=mean - sd, high=mean + sd)
        if kind != "targeted":
            rows = pd.concat([rows, level(CHANCE, sorted(rows["x"]), chance)], ignore_index=True)
        parts.append((Panel(title, "epsilon", words, x_symlog=linear, y_range=(-2.0, 102.0)), rows))
    series = [
        Series(f"{NETWORKS[network]}, {method}", colour, marker, dash)
        for network, (colour, marker) in LOOKS.items()
        for method, dash in zip(METHODS, ("-", "--"), strict=True)
    ]
    return chart(parts, [*series, CHANCE], band=True)
