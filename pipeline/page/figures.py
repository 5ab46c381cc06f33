"""The figures of a profile on disk, with their titles and captions.

Titles and captions are in `figures.json`, next to the folder of figures; what sliders show is in the folder `films`. A
picture whose arrays are missing cannot be drawn again (Git holds pictures and numbers, but no arrays). It is kept as
long as the results that it was drawn from are the same; one that is not drawn although nothing is missing is removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.drawing import style
from pipeline.drawing.drawings import Drawing, Picture, Written
from pipeline.files import write_bytes, write_json, write_text
from pipeline.report import draw
from pipeline.results.provenance import Record, unique
from pipeline.results.reading import ResultError, Results

_TEXTS = ("name", "kind", "title", "caption", "alt", "document", "code")
"""The texts kept with a picture."""
_AGAIN = "Get it back with `git checkout`, or delete it and run `dvc repro -f -s figures`."
_SOURCE = ("stage", "item", "tracking_run")
"""The fields that identify a provenance record."""


def write_figures(folder: Path, results: Results) -> Written:
    """Draw every figure into `folder` and write titles and captions next to it; remove figures without a result.

    Raises:
        ResultError: a result file is corrupt; it is named.
        FileWriteError: a figure could not be written.
    """
    before = on_disk(folder, results)
    written, drawn = Written(), []
    for drawing in draw(results, written):
        path = folder / drawing.file
        write_bytes(path, style.to_bytes(drawing.figure(), drawing.kind))
        written.files.append(path)
        written.tracking_runs[path] = unique(each.get("tracking_run") for each in drawing.records)
        drawn.append(drawing)
    kept_from_before = [each for each in before if (folder / each.file).exists() and _waits(each, written.missing)]
    shown = _with_kept(drawn, kept_from_before)
    write_json(
        folder.with_suffix(".json"), {"figures": [_to_json(each) for each in shown], "incomplete": written.missing}
    )
    contents = {_film(folder, each.name): each.film for each in shown if each.film}
    for path, content in contents.items():
        write_text(path, content)
    kept = {folder / each.file for each in shown} | contents.keys()
    films_folder(folder).mkdir(parents=True, exist_ok=True)  # an output of the stage, even without results
    for path in [*folder.glob("*.svg"), *folder.glob("*.png"), *films_folder(folder).iterdir()]:
        if path not in kept:
            path.unlink()
    return written


def films_folder(folder: Path) -> Path:
    """Where the films of figures are, by the folder of figures."""
    return folder.with_name("films")


def _film(folder: Path, name: str) -> Path:
    return films_folder(folder) / f"{name}.json"


def on_disk(folder: Path, results: Results) -> list[Picture]:
    """The figures on disk whose results have not changed since they were drawn, with their titles and captions.

    Raises:
        ResultError: `figures.json`, or a result, is corrupt.
    """
    pictures = []
    for entry in _read(folder).get("figures", []):
        records = [record for source in entry["sources"] if (record := _record(results, source))]
        if len(records) == len(entry["sources"]):
            film = _film(folder, entry["name"])
            content = film.read_text(encoding="utf-8") if entry.get("film") and film.exists() else ""
            pictures.append(Picture(**{key: entry[key] for key in _TEXTS}, records=records, film=content))
    return pictures


def incomplete(folder: Path) -> list[str]:
    """Executed items whose arrays or tables were missing when figures were drawn. Raises `ResultError` as `on_disk`."""
    return [str(each) for each in _read(folder).get("incomplete", [])]


def _waits(picture: Picture, missing: Sequence[str]) -> bool:
    """Whether arrays or tables of an item that it shows are away."""
    items = {each.partition(" ")[0] for each in missing}
    return any(f"{record['stage']}/{record['item']}" in items for record in picture.records)


def _with_kept(drawn: Sequence[Drawing], before: Sequence[Picture]) -> list[Picture]:
    """The figures just drawn, and those kept from before, each placed after the figure that it followed before."""
    shown: list[Picture] = list(drawn)
    names = [each.name for each in shown]
    for place, picture in enumerate(before):
        if picture.name not in names:
            earlier = [names.index(each.name) for each in before[:place] if each.name in names]
            at = max(earlier[-1:], default=-1) + 1
            shown.insert(at, replace(picture, code=picture.code.partition("#")[0]))  # its lines may have moved since
            names.insert(at, picture.name)
    return shown


def _read(folder: Path) -> dict[str, Any]:
    """The content of `figures.json` beside the folder."""
    path = folder.with_suffix(".json")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ResultError(f"{path} is corrupt: {error}. {_AGAIN}") from None
    return content


def _record(results: Results, source: dict[str, Any]) -> Record | None:
    """The provenance record that a source names; None if that result is gone or was made again."""
    numbers = results.numbers(str(source["stage"]), str(source["item"]))
    records = numbers.records if numbers else []
    return next((each for each in records if all(each.get(key) == source[key] for key in _SOURCE)), None)


def _to_json(figure: Picture) -> dict[str, Any]:
    return {
        **{key: getattr(figure, key) for key in _TEXTS},
        **({"film": True} if figure.film else {}),
        "sources": [{key: record.get(key) for key in _SOURCE} for record in figure.records],
    }
