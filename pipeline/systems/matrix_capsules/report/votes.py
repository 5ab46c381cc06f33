"""Figures 2 and B.2 of document 004: votes gather around class capsules over the iterations of routing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLUE, FAINT, VERMILLION, WIDTH, in_house_style, plain
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES
from pipeline.results.reading import NotMeasuredError, Results, with_training
from pipeline.systems.matrix_capsules.report.runs import class_names, runs, trial_of

_SHOWN = 0.99
"""Share of the histograms' weight that is drawn. The few farthest votes are left out; they would need a long axis."""


def votes_concentrate(results: Results) -> Finding:
    """Figure 2: routing gives the correct class a larger share of the votes that are close to class capsules.

    The weight of a vote is its assigned share times the child's activation. A vote is close if its distance to the
    pose of its class capsule is at most a radius. The radius is such that close votes have a tenth of all weight in the
    first iteration. Our number is the change of the correct class's share of the weight of close votes, from the first
    to the last iteration, in percentage points. The claim holds if this share and the correct class's share of the
    weight of all votes both rise by more than two standard errors (binomial, over images). Smaller rises do not count:
    they also occur in untrained networks. Raises `NotMeasuredError` if there is one iteration, or no measured vote.
    """
    trial = trial_of(results, results.evidence.matrix_capsules.votes)
    numbers, run, images = trial.numbers, trial.run, trial.numbers.number("voted_images")
    if run.model.iterations < 2 or images is None:
        raise NotMeasuredError(f"evaluate/{trial.name} has no votes, or routes only once")
    steps = [str(t + 1) for t in range(run.model.iterations)]
    near, whole = ([numbers.needed("votes", each, t) for t in steps] for each in ("near", "all"))
    notes = [
        f"share of the correct class in {words}: "
        f"{', '.join(f'{100 * share.mean:.1f}' for share in found)} % in iterations 1 to {len(steps)}"
        for words, found in (("the weight of votes close to a pose", near), ("the weight of all votes", whole))
    ]
    notes.append(f"by chance: {100 / run.model.classes:.0f} %")

    holds = True
    for found, noisy in ((near, (near[0], near[-1])), (whole, (whole[-1],))):  # whole[0] is 1 / classes, without noise
        variance = sum(share.mean * (1 - share.mean) for share in noisy) / images
        holds &= found[-1].mean - found[0].mean > SIGNIFICANT_SES * math.sqrt(variance)
    said = remarks("matrix_capsules", "iterations_3", run, trial.dataset)
    records, gain = with_training(results, numbers, trial.name), near[-1].minus(near[0]).scaled(100)
    return Finding(gain, records, holds=holds, remarks=said, notes=notes)


MEASURES: dict[str, Measure] = {"004.fig2": votes_concentrate}


def draw(results: Results) -> Iterator[Drawing]:
    """Yield a drawing for each run of matrix capsules whose votes were measured."""
    for trial in runs(results, "matrix_capsules"):
        arrays = results.examples("evaluate", trial.item, ("counts", "edges", "images", "labels", "scores"))
        if arrays is None:
            continue
        classes = tuple(map(plain, class_names(trial.numbers.settings, trial.dataset, trial.run.model.classes)))
        yield Drawing(
            f"matrix-votes-{trial.item}",
            "png",
            f"Votes gather around class capsules, {trial.item}",
            "Histograms of the distances of votes to the pose of each class capsule, in each routing iteration (Figure "
            "2 of document 004). The weight of a vote is its assigned share times its child's activation. Votes for "
            "the correct class (blue) should come closer and gain weight; other votes should lose weight. Orange: the "
            "predicted class of a misclassified image. Heights are relative to each image's highest bin. Axes end "
            f"where {100 * _SHOWN:.0f} % of the histograms' weight is shown.",
            f"{len(arrays['counts'])} images, each with histograms of {len(classes)} classes in "
            f"{arrays['counts'].shape[1]} iterations.",
            trial.numbers.records,
            partial(votes, arrays, classes),
        )


@in_house_style
def votes(arrays: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Draw Figure 2. Each row shows an image (the first of a stereo pair), then a panel for each iteration, with a
    histogram of vote distances for each class.

    Args:
        arrays: the histograms `counts [images, iterations, classes, bins]` and their `edges [bins + 1]`, the pictures
            `images [images, C, s, s]`, their `labels`, and the network's `scores [images, classes]`.
    """
    counts, edges, labels = arrays["counts"], arrays["edges"], arrays["labels"]
    shown, iterations = counts.shape[:2]
    figure = Figure(figsize=(WIDTH, 1.75 * shown + 0.3))
    grid = figure.subplots(shown, 1 + iterations, squeeze=False, width_ratios=[0.8, *[1.0] * iterations])
    middle = (edges[1:] + edges[:-1]) / 2
    nearer = counts.sum((0, 1, 2)).cumsum()
    right = edges[1:][nearer >= _SHOWN * nearer[-1]][0]
    for row, (label, taken) in enumerate(zip(labels, arrays["scores"].argmax(1), strict=True)):
        picture = grid[row, 0]
        picture.imshow(arrays["images"][row, 0], cmap="gray", vmin=0, vmax=255)
        picture.set_title(classes[label] + ("" if taken == label else f", taken for {classes[taken]}"), fontsize=7)
        picture.axis("off")
        heights = counts[row] / (counts[row].max() or 1.0)
        for t, axis in enumerate(grid[row, 1:]):
            for n, height in enumerate(heights[t]):
                colour = BLUE if n == label else VERMILLION if n == taken else FAINT
                axis.fill_between(middle, n, n - 0.9 * height, step="mid", color=colour, alpha=0.75, linewidth=0)
                axis.axhline(n, color=colour, linewidth=0.6)
            axis.set(xlim=(edges[0], right), ylim=(len(classes) - 0.85, -1.05))
            axis.set_yticks(range(len(classes)), classes if t == 0 else [])
            axis.tick_params(axis="y", length=0)
            axis.tick_params(axis="x", labelbottom=row == shown - 1)
            axis.grid(visible=False)
            axis.spines["left"].set_visible(False)
    for t, (first, last) in enumerate(zip(grid[0, 1:], grid[-1, 1:], strict=True), 1):
        first.set_title(f"iteration {t}")
        last.set_xlabel("distance to the pose")
    return figure
