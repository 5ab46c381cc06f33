"""Writes a profile's figures, prepares them for the page, and writes the tables that `dvc plots` draws.

`figures.json` has titles and captions. The folder `films` has films, which the page shows with a slider. Both are next
to the folder of figures. Git has figures and numbers, but no arrays, so a clone may lack the arrays that a figure
shows. Such a figure is kept unless its results were made again. Other figures are removed if they are not drawn again.
"""

import base64
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from PIL import Image

from pipeline.data.datasets import reading
from pipeline.drawing import style
from pipeline.drawing.drawings import Picture
from pipeline.files import read_json, write_bytes, write_json, write_text
from pipeline.report import draw
from pipeline.results.provenance import Record, item_name, unique
from pipeline.results.reading import Results

_TEXTS = ("name", "kind", "title", "caption", "alt", "document", "code")
"""Attributes of a `Picture` that are written to `figures.json`."""
_SOURCE = ("stage", "item", "tracking_run")
"""The fields that identify a provenance record."""
_PIXELS_PER_INCH = 96  # by the definition of a CSS pixel

FRONT = ("objects-", "scenes-", "planes-", "equivariance-summary", "matrix-votes-")
"""Prefixes of figures' names. The page's first screen shows each document's first PNG figure with such a prefix."""
FRONT_SIZE = (640, 320)
"""Maximum width and height, in pixels, of a figure's image on the first screen. The page shows it at half this size, so
that it is sharp on high-density screens. An image that is too tall for its width is cropped at the bottom.
"""
_UNSEEN = re.compile(r"<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)
_PLAIN = " /:=,.;()'!*-_+?@[]{}|~$<>"
"""Characters that need no encoding in a data URI, besides letters and digits."""


def write_figures(folder: Path, results: Results) -> dict[Path, list[str]]:
    """Draw every figure into `folder`, write titles and captions next to it, and remove files of figures that are no
    longer shown. Returns a dictionary from the path of each drawn figure to the ids of the tracked runs whose results
    it shows. Raises `UserError` if a file cannot be read or written.
    """
    before, _ = on_disk(folder, results)
    tracking_runs, drawn = dict[Path, list[str]](), dict[str, Picture]()
    for drawing in draw(results):
        path = folder / drawing.file
        write_bytes(path, style.to_bytes(drawing.figure(), drawing.kind))
        tracking_runs[path] = unique(each.get("tracking_run") for each in drawing.records)
        drawn[drawing.name] = drawing
    away = {each.partition(" ")[0] for each in results.missing}  # items with missing arrays or tables
    kept = {
        each.name: each
        for each in before
        if each.name not in drawn
        and any(item_name(record) in away for record in each.records)
        and (folder / each.file).exists()
    }
    places = [each.name for each in before] if kept else []  # kept figures keep their place in the order
    shown = [found for name in dict.fromkeys([*places, *drawn]) if (found := kept.get(name) or drawn.get(name))]
    entries = [
        {key: getattr(each, key) for key in _TEXTS}
        | ({"film": True} if each.film else {})
        | {"sources": [{key: record.get(key) for key in _SOURCE} for record in each.records]}
        for each in shown
    ]
    write_json(folder.with_suffix(".json"), {"figures": entries, "incomplete": results.missing})
    films = folder.with_name("films")
    films.mkdir(parents=True, exist_ok=True)  # DVC expects the folder, even if there is no film
    contents = {films / f"{each.name}.json": each.film for each in shown if each.film}
    for path, content in contents.items():
        write_text(path, content)
    pictures = {folder / each.file for each in shown}
    for path in {*folder.glob("*.svg"), *folder.glob("*.png"), *films.iterdir()} - pictures - contents.keys():
        path.unlink()
    return tracking_runs


def on_disk(folder: Path, results: Results) -> tuple[list[Picture], list[str]]:
    """Two lists: the figures on disk that were drawn from the present results, and the items with a result whose arrays
    or tables were missing when figures were drawn last. An item is given as text, such as "evaluate/vae (its table)".
    """
    path = folder.with_suffix(".json")
    content = read_json(path) if path.exists() else {"figures": [], "incomplete": []}
    pictures = []
    for entry in content["figures"]:
        records = [record for source in entry["sources"] if (record := _record(results, source))]
        if len(records) == len(entry["sources"]):
            film = folder.with_name("films") / f"{entry['name']}.json"
            shown = film.read_text(encoding="utf-8") if entry.get("film") and film.exists() else ""
            pictures.append(Picture(**{key: entry[key] for key in _TEXTS}, records=records, film=shown))
    return pictures, content["incomplete"]


def _record(results: Results, source: dict[str, Any]) -> Record | None:
    """The provenance record that `source` identifies. None if the result is gone or was made again."""
    numbers = results.numbers(str(source["stage"]), str(source["item"]))
    records = numbers.records if numbers else []
    return next((each for each in records if all(each.get(key) == source[key] for key in _SOURCE)), None)


# ---- figures as data URIs, for the page


def load_figure(folder: Path, figure: Picture) -> Picture:
    """The figure with two fields set: `uri` (its file in `folder`, as a data URI) and `width` (in CSS pixels)."""
    path = folder / figure.file
    with reading(path, "figures"):
        if figure.kind == "png":
            with Image.open(path) as picture:
                uri, inches = webp_uri(picture, lossless=True), picture.width / style.DPI
        else:
            content = path.read_text(encoding="utf-8")
            points = re.search(r'<svg[^>]* width="([\d.]+)pt"', content)
            assert points is not None, "it has no width"
            uri, inches = vector_uri(content), float(points[1]) / 72
    return replace(figure, uri=uri, width=round(inches * _PIXELS_PER_INCH))


def webp_uri(picture: Image.Image, **options: Any) -> str:
    """The data URI of an image in WebP format. With `lossless=True`, it is a quarter shorter than that of a PNG."""
    written = io.BytesIO()
    picture.convert("RGB").save(written, "webp", **options)
    return f"data:image/webp;base64,{base64.b64encode(written.getvalue()).decode()}"


def vector_uri(svg: str) -> str:
    """The data URI of an SVG drawing, without comments, metadata and most white space. In base64, the URI would be
    longer, because only a few characters of a drawing need encoding.
    """
    svg = re.sub(r"\s+", " ", _UNSEEN.sub("", svg)).replace("'", "&#39;").replace('"', "'")
    return "data:image/svg+xml," + quote(svg, safe=_PLAIN)


def front_picture(figures: Iterable[Picture]) -> dict[str, str] | None:
    """Title (`alt`) and reduced image (`uri`) of the first PNG figure that `FRONT` selects; None if there is none."""
    shown = next((each for each in figures if each.kind == "png" and each.name.startswith(FRONT)), None)
    if shown is None:
        return None
    with Image.open(io.BytesIO(base64.b64decode(shown.uri.partition(",")[2]))) as picture:
        width, height = FRONT_SIZE
        top = picture.crop((0, 0, picture.width, min(picture.height, picture.width * height // width)))
        top.thumbnail(FRONT_SIZE, Image.Resampling.LANCZOS)
        return {"uri": webp_uri(top, quality=85), "alt": shown.title}


# ---- tables that `dvc plots` draws for all runs together


def write_plots(folder: Path, results: Results) -> None:
    """Write a CSV file for each plot in which `dvc plots` shows all runs. A row is a point of the plot. A file is
    written even if it has no rows, because DVC expects it. Raises `UserError` if a file cannot be read or written.
    """
    for name, columns, tables in (
        ("learning", ["epoch", "loss"], _validation(results, "loss")),
        ("accuracy", ["epoch", "accuracy"], _validation(results, "accuracy")),
        ("rotation", ["angle", "accuracy"], _rotation(results)),
    ):
        columns = ["system", "run", *columns]
        whole = pd.concat(list(tables) or [pd.DataFrame(columns=columns)])
        write_text(folder / f"{name}.csv", whole.to_csv(columns=columns, index=False, float_format="%.5g"))


def _validation(results: Results, metric: str) -> Iterator[pd.DataFrame]:
    """Yield a table for each run that has the metric. A row has an epoch and the mean over seeds that reached it."""
    for run, numbers in results.executed("train"):
        if metric in numbers.names("validation"):
            table = results.table("train", run, ("replica", "epoch", column := f"validation_{metric}"))
            if table is not None:
                means = table.groupby("epoch")[column].mean().rename(metric).reset_index()
                yield means.assign(system=numbers.run(run).variant, run=run)


def _rotation(results: Results) -> Iterator[pd.DataFrame]:
    """Yield a table for each run with linear probes. A row has the name of the features, the largest angle of the
    test images' rotations, and the mean accuracy over seeds. Only probes fitted to equally rotated images are included.
    """
    for run, numbers in results.executed("evaluate"):
        columns = ("features", "protocol", "test", "accuracy")
        table = results.table("evaluate", run, columns) if numbers.names("probe") else None
        if table is not None:
            angles = table["test"].str.extract(r"rotated_(.+)$", expand=False)
            found = table.assign(angle=angles)[(table["protocol"] == "refit") & angles.notna()]
            means = found.groupby(["features", "angle"], as_index=False, sort=False)["accuracy"].mean()
            yield means.assign(system=numbers.run(run).variant, run=run + " " + means["features"])
