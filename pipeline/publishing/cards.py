"""Model cards: what a published model is, what it was trained on, how good it is, and what it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import TypeAdapter

from pipeline.page.scorecard import Row, dataset_and_remarks
from pipeline.publishing.trained import pictures_of_an_image
from pipeline.results.outcome import RECORD
from pipeline.results.reading import Numbers, unique
from pipeline.results.spread import flat
from pipeline.settings import WITH_NEUTRAL
from pipeline.systems import SYSTEMS, Run

_FIGURES = 12


def card(
    summary: Mapping[str, Any], trained: Numbers, evaluated: Numbers | None, rows: Sequence[Row], size: int
) -> str:
    """A model card in Markdown.

    Args:
        summary: the content of `model.json`.
        trained, evaluated: the results of the stages `train` and `evaluate` of this run.
        rows: those of the scorecard that rest on this run.
        size: bytes of the published files.
    """
    return "\n".join(_lines(summary, trained, evaluated, rows, size)) + "\n"


def _lines(
    summary: Mapping[str, Any], trained: Numbers, evaluated: Numbers | None, rows: Sequence[Row], size: int
) -> Iterator[str]:
    run, record = summary["run"], trained.records[-1]
    settings: Run = TypeAdapter(Run).validate_python(summary["settings"], context=WITH_NEUTRAL)
    yield f"# {run}"
    yield ""
    yield f"{SYSTEMS[summary['variant']].description}."
    yield ""
    seeds = ", ".join(str(seed) for seed in summary["seeds"])
    yield f"- **Data:** {record['dataset']} (SHA-256 of the prepared file: `{summary['data_sha256'][:12]}`)"
    hours = record["seconds"] / 3600
    yield f"- **Training:** {record['epochs']:g} epochs, seeds {seeds}, {hours:.2f} h on {record['device']}"
    yield f"- **Code:** commit `{record['commit'][:7]}`{' with uncommitted changes' if record['dirty'] else ''}"
    yield f"- **Images:** {summary['image_size']} pixels a side"
    yield f"- **Files:** weights of each seed (safetensors), {size / 1e6:.1f} MB in all; `model.json` has their hashes"
    yield ""
    yield "## Use"
    yield ""
    yield f"    dvc pull --allow-missing -r published models/{run}"
    pictures = "left.png right.png" if pictures_of_an_image(settings.channels) == 2 else "picture.png"
    yield f"    python -m pipeline load {run} {pictures}"
    yield ""
    yield "## Figures"
    yield ""
    figures = _headline(evaluated) or _headline(trained)
    source = "test images (stage `evaluate`)" if evaluated else "validation images (stage `train`)"
    yield f"On {source}, the mean over seeds; the results of the stages have all of them."
    yield ""
    yield "| figure | value |"
    yield "| --- | --- |"
    for name, value in list(figures.items())[:_FIGURES]:
        yield f"| {name} | {value:.4g} |"
    if rows:
        yield ""
        yield "| claim | document | here | verdict |"
        yield "| --- | --- | --- | --- |"
        for row in rows:
            theirs, ours = row["paper"].get("value"), row["ours"]
            numbers = ("" if theirs is None else f"{theirs:g}", "" if ours is None else f"{ours['value']:.4g}")
            verdict = ", ".join(each for each in (row["verdict"], row.get("untested")) if each)
            yield f"| {row['id']}: {row['claim']} | {' | '.join(numbers)} | {verdict} |"
    yield ""
    yield "## Limits"
    yield ""
    yield "Trained to compare methods, on one data set of small images; not meant for any other use."
    if differing := unique(remark for row in rows for remark in dataset_and_remarks(row)[1]):
        yield ""
        yield "Differences from the documents' settings, of one claim or several:"
        yield ""
        yield from (f"- {each}" for each in differing)
    yield ""
    yield "## Settings"
    yield ""
    text = yaml.safe_dump(summary["settings"], sort_keys=False, default_flow_style=None, width=110)
    yield from (f"    {line}" for line in text.splitlines())


def _headline(numbers: Numbers | None) -> dict[str, float]:
    """The headline numbers of a result, by dotted name."""
    if numbers is None:
        return {}
    values = json.loads(numbers.path.read_text(encoding="utf-8"))
    return flat({key: value for key, value in values.items() if key != RECORD})
