"""Figures of the probabilistic capsule model and of the models it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.films import Film
from pipeline.results.claims import load_claims
from pipeline.results.documents import LABELS
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report import curves
from pipeline.systems.generative.report.comparison import (
    evaluated,
    groups,
    other_images,
    paper_table_1,
    probe_table,
    sweep_table,
)
from pipeline.systems.generative.report.runs import chance_of, sweep_of, sweeps

FEATURES_DRAWN = ("t0", "t0_A0", "posterior", "mu_sigma")
"""The features in Table 1 and Figure 4; other features that were probed are in the tables."""

_TURNED = ("angles", "images", "reconstructions", "arrangements", "frames", "presences", "colours")
_WORK = ("replica", "engine", "angle", "round", "evaluations", "seconds", "bound")


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Every figure of this system that the results allow, one at a time.

    Args:
        written: collects the names of items whose arrays or tables are missing.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    yield from _accuracy(results)
    yield from _turned(results, written)
    yield from _optimised(results, written)
    yield from _evaluated(results, written)
    yield from _swept(results)
    yield from _beyond(results)


def _accuracy(results: Results) -> Iterator[Drawing]:
    paper = paper_table_1(load_claims())
    found = evaluated(results)
    for group in groups(results.evidence.generative.table_1, found):
        chance = chance_of(found[group[0]], group[0])
        table = pd.concat([probe_table(found[run]) for run in group], ignore_index=True)
        table = table[table["features"].isin(FEATURES_DRAWN)]
        if table.empty:
            continue
        records = [record for run in group for record in found[run].records]
        upright = found[group[0]].run(group[0]).augmentation.rotation == 0
        beside = paper[paper["features"].isin(table["features"])] if upright else paper.head(0)
        label = dataset_label(records)
        papers = LABELS["mnist"]
        stand_in = "" if label == papers or not upright else f" (ours: {label}; the paper's: {papers})"
        theirs = "" if beside.empty else "; open markers: Table 1 of the paper, in both plots"
        yield Drawing(
            f"accuracy-{group[0]}",
            "svg",
            f"Probe accuracy over rotation, {' and '.join(group)}",
            f"Accuracy of a linear probe on each representation{_symbols(table)} as test images are rotated further "
            "than the training images. Left: the probe is refit on equally warped images; right: it is fit on clean "
            f"images. Bars: one sd over seeds, where there are several{theirs}{stand_in}"
            f"{other_images(found, group)}.",
            "Two plots of accuracy by range of test rotation and for affine warps, one line each for "
            f"{', '.join(look(features).name for features in dict.fromkeys(table['features']))}.",
            records,
            partial(curves.accuracy_over_rotation, table, beside, chance),
        )


def _symbols(table: pd.DataFrame) -> str:
    """What t0 and A0 are, where they are drawn."""
    return " (t0: presences of the objects; A0: their poses)" if {"t0", "t0_A0"} & set(table["features"]) else ""


def _turned(results: Results, written: Written) -> Iterator[Drawing]:
    for study, numbers in results.executed("turn"):
        arrays = results.examples("turn", study, _TURNED)
        if arrays is None:
            written.miss(f"turn/{study} (its examples)")
            continue
        rows = [(name, pictures_of / 255) for name, pictures_of in _strips(arrays)]
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
            partial(pictures.over_rotation, arrays["angles"], rows),
            film=_film(arrays).to_json(),
        )


def _film(arrays: Mapping[str, np.ndarray]) -> Film:
    tracks = (arrays[name] for name in ("frames", "presences", "colours"))
    return Film("rotation of the input", "°", arrays["angles"], _strips(arrays), *tracks)


def _strips(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """What is seen of a digit as it turns."""
    names = {"images": "input", "reconstructions": "reconstruction", "arrangements": "parts in colour"}
    return [(words, arrays[name]) for name, words in names.items()]


def _optimised(results: Results, written: Written) -> Iterator[Drawing]:
    names = ("angles", "images", "before", "after", "arrangements_before", "arrangements_after")
    for study, numbers in results.executed("optimise"):
        arrays, steps = results.examples("optimise", study, names), results.table("optimise", study, _WORK)
        chosen = str(numbers.settings.optimise[study].chosen)
        if arrays is None:
            written.miss(f"optimise/{study} (its examples)")
        else:
            rows = [
                ("input", arrays["images"]),
                ("encoder", arrays["before"]),
                ("optimised", arrays["after"]),
                ("encoder's parts", arrays["arrangements_before"]),
                ("optimised parts", arrays["arrangements_after"]),
            ]
            yield Drawing(
                f"reconstructions-{study}",
                "png",
                f"Reconstructions before and after test-time optimisation, {study}",
                "If the encoder's reconstruction of a rotated digit is bad, maximising the bound from there should "
                "repair it (as in the paper's Figure 3). "
                f"Engine: {curves.name_of_engine(chosen)}.",
                "One digit rotated step by step; below it the reconstruction from the encoder and the one after "
                "optimisation, then the parts of each in colour.",
                numbers.records,
                partial(pictures.over_rotation, arrays["angles"], rows),
            )
        if steps is None:
            written.miss(f"optimise/{study} (its table)")
        else:
            yield Drawing(
                f"optimisation-{study}",
                "svg",
                f"The bound during test-time optimisation, {study}",
                "The bound that each engine reaches after a number of gradient evaluations (left) and of seconds "
                "for all images in one batch (right), for the narrowest and the widest range of rotation. The "
                "vertical axis starts near the bounds of the encoder's output.",
                "Two line plots of the bound, over gradient evaluations and over seconds: one line per engine for the "
                "narrowest and for the widest range of rotation.",
                numbers.records,
                partial(curves.optimisation_curves, steps),
            )


def _evaluated(results: Results, written: Written) -> Iterator[Drawing]:
    names = ("templates", "alphas", "images", "reconstructions", "arrangements", "angles", "prior_samples")
    for run, numbers in evaluated(results).items():
        if numbers.run(run).variant != "generative":
            continue
        arrays = results.examples("evaluate", run, names)
        if arrays is None:
            written.miss(f"evaluate/{run} (its examples)")
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
        if "object_classes" in arrays:  # older results do not have it
            yield _objects(run, numbers, arrays)


def _objects(run: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> Drawing:
    """The most used objects first: what they explain."""
    classes = arrays["object_classes"]
    images = classes.sum(1)
    order = [i for i in np.argsort(-images, kind="stable")[: pictures.MOST_COLUMNS] if images[i]]
    headings = [
        "\n".join(
            [str(classes[i].argmax()), _percent(classes[i].max() / images[i]), _percent(images[i] / images.sum())]
        )
        for i in order
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
            [
                ("mean of its images", arrays["object_images"][order]),
                ("mean of its parts", arrays["object_parts"][order]),
            ],
            headings,
            "most common class\nits share of these images (%)\nshare of all images (%)",
        ),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.01 else "<1"


def _swept(results: Results) -> Iterator[Drawing]:
    found = {sweep.run: sweep for sweep in sweeps(results)}
    tables = {run: table for run, sweep in found.items() if not (table := sweep_table(sweep)).empty}
    first = {run: found[run].first for run in tables}
    for group in groups(results.evidence.generative.sweep, tables):
        chance = chance_of(first[group[0]], group[0])
        table = pd.concat([tables[run] for run in group], ignore_index=True)
        table = table[table["features"].isin(FEATURES_DRAWN)]
        if table.empty:
            continue
        yield Drawing(
            f"sweep-{group[0]}",
            "svg",
            f"Trained and tested on rotations, {' and '.join(group)}",
            f"Does training on wider rotations lower the capsules' accuracy{_symbols(table)}, and do they stay ahead "
            "of the VAE? In the paper's Figure 4 accuracy falls, and neither the capsules nor SCAE stay ahead. Bars: "
            f"one sd over seeds, where there are several{other_images(first, group)}.",
            "Accuracy over the range of rotation in training and testing, one line each for "
            f"{', '.join(look(features).name for features in dict.fromkeys(table['features']))}.",
            [record for run in group for record in found[run].records],
            partial(curves.accuracy_over_training_range, table, chance),
        )


def _beyond(results: Results) -> Iterator[Drawing]:
    """A swept run with parts in any slot, compared with one that differs from it in nothing else."""
    names = results.evidence.generative.sweep
    own, freed = (sweep_of(results, run) for run in (names.get("own_slots"), names.get("any_slots")))
    if own is None or freed is None:
        return
    before, after = sweep_table(own), sweep_table(freed)
    after = after.assign(features=after["features"] + "_any_slot")
    table = pd.concat([before, after], ignore_index=True)
    table = table[table["features"].isin(["t0", "t0_any_slot"])]
    if table["features"].nunique() < 2:
        return
    yield Drawing(
        f"beyond-{freed.run}",
        "svg",
        f"Parts in any slot of their parent, {freed.run} compared with {own.run}",
        "The paper explains the loss of accuracy on wide rotations by templates that are tied to their places in "
        "an object. If that is the cause, accuracy should fall less without the tie.",
        f"Accuracy of the t0 probe over the range of rotation in training and testing, one line for {own.run} "
        f"and one for {freed.run}.",
        [*own.records, *freed.records],
        partial(curves.accuracy_over_training_range, table, chance_of(freed.first, freed.run)),
    )
