"""What a run of capsules has learnt, in pictures (document 000, Figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.films import Film
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.shared import evaluated

_TURNED = ("angles", "images", "reconstructions", "arrangements", "frames", "presences", "colours")
_EVALUATED = (
    "templates", "alphas", "images", "reconstructions", "arrangements", "angles", "prior_samples", "object_classes",
    "object_images", "object_parts",
)  # fmt: skip


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A digit as it turns; and for each run, templates, samples of the prior, and what the objects explain."""
    yield from _turned(results, written)
    yield from _evaluated(results, written)


def _turned(results: Results, written: Written) -> Iterator[Drawing]:
    for study, numbers in results.executed("turn"):
        arrays = written.examples(results, "turn", study, _TURNED)
        if arrays is None:
            continue
        tracks = (arrays[name] for name in ("frames", "presences", "colours"))
        yield Drawing(
            f"turning-{study}",
            "png",
            f"A digit rotated through 360 degrees, {study}",
            "The encoder sees each picture alone. If it found the same parts in a rotated digit, their frames would "
            "rotate with it, their presences would stay and colours would not change. In the page's film, frames are "
            "the squares of the parts' templates at their poses, the stronger the more present a part is; thick is a "
            "template's top.",
            "One digit rotated step by step; below it its reconstruction and its parts, one colour each.",
            numbers.records,
            partial(pictures.over_rotation, arrays["angles"], [(name, each / 255) for name, each in _strips(arrays)]),
            film=Film("rotation of the input", "°", arrays["angles"], _strips(arrays), *tracks).to_json(),
        )


def _strips(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """What is seen of a digit as it turns."""
    names = {"images": "input", "reconstructions": "reconstruction", "arrangements": "parts in colour"}
    return [(words, arrays[name]) for name, words in names.items()]


def _evaluated(results: Results, written: Written) -> Iterator[Drawing]:
    for run, numbers in evaluated(results).items():
        if numbers.run(run).variant != "generative":
            continue
        arrays = written.examples(results, "evaluate", run, _EVALUATED)
        if arrays is None:
            continue
        yield Drawing(
            f"arrangements-{run}",
            "png",
            f"Part arrangements over rotation, {run}",
            "Each part has its own colour. As long as the model uses the same arrangement of parts, the coloured "
            "strokes rotate with the input; a change of colours means that other parts draw the digit (the paper's "
            "Figure 5).",
            f"One digit rotated step by step; below it the reconstruction of {run} and its parts, one colour each.",
            numbers.records,
            partial(pictures.over_rotation, arrays["angles"], _strips(arrays)),
        )
        yield Drawing(
            f"templates-{run}",
            "png",
            f"Templates learned by {run}",
            "Look for templates that look like strokes, for parts that are never used (blank or grainy alpha channel), "
            "and for templates that are rotated or stretched copies of each other (as in the paper's Figure 6).",
            f"The {len(arrays['templates'])} templates of {run} in a row, with their alpha channels below.",
            numbers.records,
            partial(pictures.templates, arrays["templates"], arrays["alphas"]),
        )
        yield Drawing(
            f"prior-{run}",
            "png",
            f"Samples from the prior of {run}",
            "Objects, then parts, then pixels sampled from the generative model. The more the strokes look like "
            "digits, the more of a digit's geometry the objects have learned.",
            f"A grid of {min(len(arrays['prior_samples']), 48)} images sampled from the prior of {run}.",
            numbers.records,
            partial(pictures.samples, arrays["prior_samples"]),
        )
        yield _objects(run, numbers, arrays)


def _objects(run: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> Drawing:
    """The most used objects first: what they explain."""
    classes = arrays["object_classes"]
    images = classes.sum(1)
    order = [i for i in np.argsort(-images, kind="stable")[: pictures.MOST_COLUMNS] if images[i]]
    headings = [
        f"{classes[i].argmax()}\n{_percent(classes[i].max() / images[i])}\n{_percent(images[i] / images.sum())}"
        for i in order
    ]
    rows = [
        ("mean of its images", arrays["object_images"][order]),
        ("mean of its parts", arrays["object_parts"][order]),
    ]
    owners = f"{len(order)} of {len(classes)} objects {'owns' if len(order) == 1 else 'own'} an image"
    return Drawing(
        f"objects-{run}",
        "png",
        f"What the objects of {run} explain",
        f"Each column is an object; its images are those in which it owns more parts than any other object. Mean of "
        f"these images, and of the parts that the object owns in them. {owners}; an object that stands for an "
        "arrangement of strokes has a sharp mean image of mostly one class.",
        f"Two rows of pictures, a column for each of {len(order)} object{'s' * (len(order) != 1)}, with the most "
        "common class above.",
        numbers.records,
        partial(
            pictures.image_rows,
            rows,
            headings,
            "most common class\nits share of these images (%)\nshare of all images (%)",
        ),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.01 else "<1"
