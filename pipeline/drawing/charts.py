"""Figures that a page draws from their numbers: tidy data, what the series look like, and Vega-Lite specifications.

The template `templates/curves.json` has the anchors of DVC's plots (`<DVC_METRIC_DATA>`, `<DVC_METRIC_X>`, ...), so
that `dvc plots` can draw with it too; its field `rev` is the revision there and the series here. `specification` fills
it for one panel, with the colours, markers and dashes of the series.
"""

from __future__ import annotations

import copy
import io
import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.drawing.style import FAINT, INK

TEMPLATE = Path(__file__).with_name("templates") / "curves.json"
COLUMNS = ("panel", "series", "x", "y", "low", "high", "part")
MOST_POINTS = 120
"""Points of a line, at most; of more, some are left out evenly along the axis."""
MANY = 30
"""From so many points of a line on, markers are shown under the pointer only."""
DASHES: dict[str, list[float]] = {"-": [1, 0], "--": [6, 3], ":": [1.5, 3], "-.": [7, 3, 1.5, 3]}
MARKERS = {
    "o": "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "s": "M-.88,-.88H.88V.88H-.88Z",
    "^": "M0,-1.1L1,.75H-1Z",
    "v": "M0,1.1L1,-.75H-1Z",
    "D": "M0,-1.2L1.2,0L0,1.2L-1.2,0Z",
    "P": "M-.4,-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "X": "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
}
"""SVG paths of matplotlib's markers, within a square of side 2."""


@dataclass(frozen=True)
class Series:
    """How one series is drawn.

    Attributes:
        dash: as in matplotlib; without a line if empty.
        marker: as in matplotlib; without one if empty.
        hollow: whether markers are open, as for a paper's own numbers.
    """

    name: str
    colour: str
    marker: str = "o"
    dash: str = "-"
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        categories: the values of x in their order where x is not a number.
        x_symlog, y_symlog: up to where an axis is linear, and logarithmic from there on; 0 if it is neither.
        y_range: limits of the vertical axis; what is outside is cut off.
        from_zero: whether the vertical axis begins at zero.
    """

    title: str
    x: str
    y: str
    categories: list[str] = field(default_factory=list)
    x_log: bool = False
    y_log: bool = False
    x_symlog: float = 0.0
    y_symlog: float = 0.0
    y_range: tuple[float, float] | None = None
    from_zero: bool = False


@dataclass(frozen=True)
class Chart:
    """The numbers of a figure.

    Attributes:
        data: columns as `COLUMNS`: number of the panel, series, x, y, an interval around y (or nothing), and the part
            of a series, if its parts are not joined by a line.
        band: whether intervals are drawn as a band; else as bars.
    """

    panels: list[Panel]
    series: list[Series]
    data: pd.DataFrame
    band: bool = False

    def to_csv(self) -> str:
        """The data alone."""
        return self.data.to_csv(index=False, float_format="%.5g", lineterminator="\n")

    def to_json(self) -> dict[str, Any]:
        """All but the data."""
        return {
            "panels": [asdict(each) for each in self.panels],
            "series": [asdict(each) for each in self.series],
            "band": self.band,
        }

    @classmethod
    def read(cls, words: dict[str, Any], csv: str) -> Chart:
        """What `to_json` and `to_csv` wrote.

        Raises:
            ValueError, TypeError, KeyError: something is missing or malformed.
        """
        data = pd.read_csv(io.StringIO(csv), dtype={"series": str, "part": str})
        if list(data.columns) != list(COLUMNS):
            raise ValueError(f"columns {list(data.columns)}")
        panels = [Panel(**{**each, "y_range": each["y_range"] and tuple(each["y_range"])}) for each in words["panels"]]
        return cls(panels, [Series(**each) for each in words["series"]], data, words["band"])


def chart(
    parts: Sequence[tuple[Panel, pd.DataFrame]],
    series: Iterable[Series],
    *,
    band: bool = False,
    most: int = MOST_POINTS,
) -> Chart:
    """A chart of panels.

    Args:
        parts: each panel with its data: columns series, x, y and, if there are any, low and high, and part.
        series: what they look like; those without data are left out.
    """
    tables = []
    for number, (panel, rows) in enumerate(parts):
        rows = rows.reindex(columns=COLUMNS).assign(panel=number).dropna(subset=["y"])
        for _, points in rows.groupby(["series", _parts(rows)], sort=False):
            tables.append(_thinned(points, panel.x_log, most))
    data = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)
    known = set(data["series"])
    return Chart([panel for panel, _ in parts], [each for each in series if each.name in known], data, band)


def _parts(rows: pd.DataFrame) -> pd.Series:
    """The part of each row as text; empty where there is none."""
    return rows["part"].map(lambda part: part if isinstance(part, str) else "")


def _thinned(points: pd.DataFrame, log: bool, most: int) -> pd.DataFrame:
    if len(points) <= most:
        return points
    last = len(points) - 1
    kept = np.geomspace(1, last + 1, most) - 1 if log else np.linspace(0, last, most)
    return points.iloc[np.unique(kept.round().astype(int))]


def symlog_ticks(linear: float, largest: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """Ticks of an axis that is linear up to `linear` and logarithmic from there to `largest`: 0, then in each decade
    these steps.
    """
    decades = range(math.floor(math.log10(linear)), math.floor(math.log10(max(linear, largest))) + 1)
    found = [float(f"{step}e{decade}") for decade in decades for step in steps]  # exact, unlike a product
    return [0.0, *(tick for tick in found if linear <= tick <= largest)]


CHANCE = Series("chance", FAINT, "", ":")


def level(series: Series, x: Sequence[Any], y: float) -> pd.DataFrame:
    """Rows of a horizontal line from the first to the last of `x`."""
    return pd.DataFrame({"series": series.name, "x": [x[0], x[-1]], "y": float(y), "part": "level"})


def around(table: pd.DataFrame, mean: str = "mean", sd: str = "sd", n: str = "n") -> pd.DataFrame:
    """`table` with columns low and high: one sd around the mean where it is of several seeds."""
    known = table[sd].where(table[n] > 1)
    return table.assign(low=table[mean] - known, high=table[mean] + known)


def over_replicas(table: pd.DataFrame, by: str, column: str, factor: float = 1.0) -> pd.DataFrame:
    """Means over replicas and one sd around them: columns x, y, low, high. Only where all replicas have a value."""
    values = table.pivot_table(index=by, columns="replica", values=column).dropna()
    mean, sd = values.mean(axis=1), values.std(axis=1)
    return pd.DataFrame(
        {
            "x": values.index,
            "y": factor * mean.to_numpy(),
            "low": (factor * mean - abs(factor) * sd).to_numpy(),
            "high": (factor * mean + abs(factor) * sd).to_numpy(),
        }
    )


_CHOSEN = "chosen === null || datum.rev === chosen"


@cache
def _template() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(TEMPLATE.read_text(encoding="utf-8"))
    return content


def filled(spec: Any, anchors: dict[str, Any]) -> Any:
    """`spec` with each string that is an anchor replaced, as DVC does it."""
    if isinstance(spec, dict):
        return {key: filled(value, anchors) for key, value in spec.items()}
    if isinstance(spec, list):
        return [filled(value, anchors) for value in spec]
    return anchors.get(spec, spec) if isinstance(spec, str) else spec


def specification(chart: Chart, number: int) -> dict[str, Any]:
    """The Vega-Lite specification of a panel, data included. It is as wide as its container."""
    panel = chart.panels[number]
    rows = chart.data[chart.data["panel"] == number]
    here = [each for each in chart.series if each.name in set(rows["series"])]
    spec: dict[str, Any] = filled(
        copy.deepcopy(_template()),
        {
            "<DVC_METRIC_DATA>": _values(rows, bool(panel.categories)),
            "<DVC_METRIC_X>": "x",
            "<DVC_METRIC_Y>": "y",
            "<DVC_METRIC_X_LABEL>": panel.x,
            "<DVC_METRIC_Y_LABEL>": panel.y,
            "<DVC_METRIC_TITLE>": panel.title,
        },
    )
    spec["width"] = "container"
    encoding, layers = spec["encoding"], {layer["name"]: layer for layer in spec["layer"]}
    names = [each.name for each in here]
    encoding["color"] |= {"scale": {"domain": names, "range": [each.colour for each in here]}, "legend": None}
    if panel.categories:
        axis = {"labelAngle": 0, "labelOverlap": True}
        scale = {"domain": panel.categories, "type": "point", "padding": 0.5}
        encoding["x"] |= {"type": "ordinal", "scale": scale, "axis": axis}
    else:
        scale_of_x = {"type": "log", "nice": False} if panel.x_log else {"zero": False, "nice": False}
        encoding["x"]["scale"] = {**scale_of_x, "padding": 8}
        if panel.x_symlog:
            _symlog(encoding["x"], panel.x_symlog, rows["x"], steps=(1,))
    encoding["y"]["scale"] = {"type": "log"} if panel.y_log else {"zero": panel.from_zero}
    if panel.y_log:
        encoding["y"]["axis"] = {"tickCount": 4}
    if panel.y_range:
        encoding["y"]["scale"] = {"domain": list(panel.y_range), "nice": False} | (
            {"type": "log"} if panel.y_log else {}
        )
    if panel.y_symlog:
        _symlog(encoding["y"], panel.y_symlog, rows["y"])
    line, point, spread = layers["line"], layers["point"], layers["spread"]
    line["mark"]["clip"] = point["mark"]["clip"] = spread["mark"]["clip"] = panel.y_range is not None
    line["transform"] = [_only(each.name for each in here if each.dash)]
    dashes = [DASHES.get(each.dash, DASHES["-"]) for each in here]
    line["encoding"]["strokeDash"] |= {"scale": {"domain": names, "range": dashes}, "legend": None}
    point["transform"] = [_only(each.name for each in here if each.marker)]
    shapes = [MARKERS.get(each.marker, MARKERS["o"]) for each in here]
    point["encoding"]["shape"] |= {"scale": {"domain": names, "range": shapes}, "legend": None}
    if hollow := [each.name for each in here if each.hollow]:
        point["mark"] |= {"strokeWidth": 1.8}
        hollow_test = {"field": "rev", "oneOf": hollow}
        point["encoding"] |= {
            "fillOpacity": {"condition": {"test": hollow_test, "value": 0}, "value": 1},
            "size": {"condition": {"test": hollow_test, "value": 110}, "value": 55},
            "stroke": {"field": "rev", "type": "nominal", "scale": encoding["color"]["scale"], "legend": None},
        }
    if chart.band:
        spread["mark"] |= {"type": "area"}
        spread["encoding"]["opacity"] = {
            **encoding["opacity"],
            "condition": {"test": _CHOSEN, "value": 0.2},
            "value": 0,
        }
    seen = {
        "spread": rows["low"].notna().any(),
        "line": any(each.dash for each in here),
        "point": any(each.marker for each in here),
    }
    spec["layer"] = [layer for name, layer in layers.items() if seen[name]]  # Vega warns of layers without data
    if rows.groupby(["series", _parts(rows)]).size().max() > MANY and any(each.dash for each in here):
        _only_under_the_pointer(point)
    return spec


def _symlog(channel: dict[str, Any], linear: float, values: pd.Series[Any], **steps: Any) -> None:
    """Vega's own ticks of such an axis are evenly spaced numbers, which crowd at its end, and labels are rounded for
    these.
    """
    channel["scale"] |= {"type": "symlog", "constant": linear}
    channel["axis"] = {"values": symlog_ticks(linear, float(values.astype(float).max()), **steps), "format": "~g"}


def _only_under_the_pointer(point: dict[str, Any]) -> None:
    nearest = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    point["params"] = [{"name": "near", "select": nearest}]
    point["encoding"]["opacity"] = {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}


def _only(names: Iterable[str]) -> dict[str, Any]:
    return {"filter": {"field": "rev", "oneOf": list(names)}}


def _values(rows: pd.DataFrame, categorical: bool) -> list[dict[str, Any]]:
    """The rows for Vega-Lite, without empty cells; numbers have five digits."""
    values = []
    for row in rows.itertuples(index=False):
        value: dict[str, Any] = {"rev": row.series, "x": str(row.x) if categorical else _rounded(row.x)}
        value |= {name: _rounded(getattr(row, name)) for name in ("y", "low", "high") if pd.notna(getattr(row, name))}
        if isinstance(row.part, str) and row.part:
            value["part"] = row.part
        values.append(value)
    return values


def _rounded(value: Any) -> float:
    return float(f"{float(value):.5g}")


def lines_of_table(chart: Chart, number: int, most: int = 24) -> tuple[list[str], list[list[str]]]:
    """A panel as a table for readers: heads, and a row for each x, at most `most` of them, evenly spaced."""
    panel = chart.panels[number]
    rows = chart.data[chart.data["panel"] == number]
    names = [each.name for each in chart.series if each.name in set(rows["series"])]
    places = list(dict.fromkeys(rows["x"].astype(str))) if panel.categories else sorted(set(rows["x"].astype(float)))
    order = {name: place for place, name in enumerate(panel.categories)}
    if panel.categories:
        places.sort(key=lambda place: order.get(str(place), len(order)))
    kept = [places[i] for i in np.unique(np.linspace(0, len(places) - 1, min(most, len(places))).round().astype(int))]
    cells: dict[tuple[str, Any], str] = {}
    for row in rows.to_dict("records"):
        x = str(row["x"]) if panel.categories else float(row["x"])
        cells.setdefault((str(row["series"]), x), _with_spread(row))
    table = [[str(x) if panel.categories else f"{x:.4g}", *(cells.get((name, x), "") for name in names)] for x in kept]
    return [panel.x, *names], table


def _with_spread(row: Mapping[Hashable, Any]) -> str:
    text, low, high = f"{row['y']:.4g}", row["low"], row["high"]
    if pd.notna(low) and pd.notna(high) and high > low:
        text += f" ± {(high - low) / 2:.2g}"
    return text.replace("-", "\N{MINUS SIGN}")


CURRENT = "currentColor"


def colour_on_page(colour: str) -> str:
    """A colour as HTML: ink follows the page's own."""
    return CURRENT if colour in (INK, "#000000") else colour
