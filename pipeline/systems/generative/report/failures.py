"""Claims and figures about learned parts and objects, and their failures (document 000, section 5.4, Figures 5 to 7).

The claims about Figures 5 and 6 are tested on the capsules that are compared with Table 1. The claim about Figure 7 is
tested on a sweep, in which each model is trained and tested on images with the same range of random rotations.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing
from pipeline.drawing.films import turning
from pipeline.results.findings import Finding, Measure
from pipeline.results.reading import NotMeasuredError, Numbers, Results, with_training
from pipeline.systems.generative.report.shared import (
    Sweep,
    answer,
    complete_sweep,
    evaluated,
    evaluated_capsules,
    name_of_test,
    rises,
    sweeps,
    swept_shortcomings,
    tested_on,
)

_TURNED = ("angles", "images", "reconstructions", "arrangements", "frames", "presences", "colours")
_EVALUATED = ("templates", "alphas", "prior_samples", "object_classes", "object_images", "object_parts")


def parts_do_not_turn(results: Results) -> Finding:
    """Figure 5: which share (percent) of the largest rotation the poses of parts do not follow.

    The poses of parts in rotated images are compared with the rotated poses of parts in upright images. The claim holds
    if the deviation between the two grows with the angle and, at the largest angle, exceeds `pose_sd_floor`. This is
    the least sd that the model allows for a part's pose around the pose that an object predicts.
    """
    run, numbers = evaluated_capsules(results)
    angles = sorted(numbers.names("equivariance", "parts"), key=float)
    if len(angles) < 2:
        raise NotMeasuredError("parts were measured at fewer than two angles")
    deviation = [numbers.needed("equivariance", "parts", angle, "deviation") for angle in angles]
    missed = numbers.needed("equivariance", "parts", angles[-1], "missed").scaled(100)
    holds = deviation[-1].mean > numbers.run(run).model.pose_sd_floor and rises(deviation)
    # The paper shows one image, without numbers of seeds and test images. So these numbers are not compared.
    notes = [tested_on(numbers, run, numbers.settings.failures.images)]
    return answer(results, numbers, run, missed, holds=holds, notes=notes)


def templates_are_copies(results: Results) -> Finding:
    """Figure 6: the percentage of pairs of templates that are affine copies of each other.

    Strokes of digits serve as a control, because they are also similar up to affine maps. They fade at the edges, as
    templates do. The claim holds if at least half of the templates have a copy, and if the share of pairs that are
    copies exceeds the mean share in sets of strokes by more than the sd over these sets.
    """
    run, numbers = evaluated_capsules(results)
    names = ("pairs", "copied", "faded_strokes_pairs", "faded_strokes_pairs_sd")
    pairs, copied, strokes, noise = (numbers.needed("templates", name) for name in names)
    holds = copied.mean >= 0.5 and pairs.mean > strokes.mean + noise.mean
    notes = [
        f"strokes of digits: copies in {strokes.scaled(100).mean:.1f} ± {noise.scaled(100).mean:.1f} % of the pairs",
        tested_on(numbers, run, numbers.settings.failures.images),
    ]
    return answer(results, numbers, run, pairs.scaled(100), holds=holds, notes=notes)


def wide_training_breaks_part_use(results: Results) -> Finding:
    """Figure 7: consistency of part use (see `evaluation/consistency.py`) at the narrowest minus at the widest range.

    Each model is trained and tested on the same range of rotation. But if parts stay in place while images rotate, wide
    test rotations lower the consistency after any training. So there is a control: the run's models from `train`, with
    a narrower range, are tested on the widest range. The claim holds if the models of the widest range are less
    consistent than those of the narrowest range and than the control, both by more than the larger of the two sds.
    """
    sweep, consistency = complete_sweep(results, "capsules", "consistency")
    narrow, wide = min(consistency), max(consistency)
    _, evaluation = results.answering("evaluate", sweep.run)
    if narrow == wide or evaluation.run(sweep.run).augmentation.rotation >= wide:
        raise NotMeasuredError("the sweep has a single range of rotation, or none wider than the run's")
    control = evaluation.needed("part_use", f"{wide:g}", "consistency")
    after, used = consistency[wide], [sweep.items[narrow], sweep.items[wide]]
    return Finding(
        consistency[narrow].minus(after),
        [*(record for each in used for record in each.records), *with_training(results, evaluation, sweep.run)],
        holds=all(before.mean - after.mean > max(before.sd, after.sd) for before in (consistency[narrow], control)),
        remarks=swept_shortcomings(used),  # without `seeds`: the paper shows only a few images
        notes=[
            f"consistency on test images rotated within ±{wide:g}°: {after.mean:.2f} if trained on this range, "
            f"{control.mean:.2f} for {sweep.run}, trained on a narrower range",
            tested_on(sweep.items[wide], sweep.run, sweep.items[wide].settings.failures.images),
        ],
    )


MEASURES: dict[str, Measure] = {
    "000.fig5": parts_do_not_turn,
    "000.fig6": templates_are_copies,
    "000.fig7": wide_training_breaks_part_use,
}


def draw(results: Results) -> Iterator[Drawing]:
    """Yield figures per capsule run: a rotating digit, templates, samples, objects; and per sweep, part use."""
    of_runs = {numbers.settings.optimise[study].run: (study, numbers) for study, numbers in results.executed("turn")}
    for run, (study, numbers) in of_runs.items():  # one study of each run: all turn the same digit
        if arrays := results.examples("turn", study, _TURNED):
            yield _turned(run, numbers, arrays)
    for run, numbers in evaluated(results).items():
        capsules = numbers.run(run).variant == "generative"
        if capsules and (arrays := results.examples("evaluate", run, _EVALUATED)):
            yield from _learnt(run, numbers, arrays)
    for sweep in sweeps(results).values():
        yield from _part_use(results, sweep)


def _turned(run: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> Drawing:
    names = {"images": "input", "reconstructions": "reconstruction", "arrangements": "parts in colour"}
    strips = [(words, arrays[name]) for name, words in names.items()]
    tracks = (arrays[name] for name in ("frames", "presences", "colours"))
    return Drawing(
        f"turning-{run}",
        "png",
        f"A digit rotated through 360 degrees, {run}",
        "The encoder sees one picture at a time. If it found the same parts in a rotated digit, parts would rotate "
        "with the digit, and presences and colours would not change. In the paper's Figure 5, the parts' arrangement "
        "changes. In the page's film, each part has a frame, the outline of its template. The more present the part, "
        "the stronger its frame. The thick edge is the template's top.",
        "A digit rotated step by step. Below, its reconstruction and its parts, each part in one colour.",
        numbers.records,
        partial(pictures.over_rotation, arrays["angles"], [(name, each / 255) for name, each in strips]),
        film=turning(arrays["angles"], strips, *tracks),
    )


def _learnt(run: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> Iterator[Drawing]:
    owned = int((arrays["object_classes"].sum(1) > 0).sum())
    figures = {
        "templates": (
            f"Templates learned by {run}",
            "Look for templates that look like strokes, for parts that are never used (blank or grainy alpha channel), "
            "and for templates that are rotated or stretched copies of each other (as in the paper's Figure 6).",
            f"The {len(arrays['templates'])} templates of {run} in rows, with their alpha channels below.",
            partial(pictures.templates, arrays["templates"], arrays["alphas"]),
        ),
        "prior": (
            f"Samples from the prior of {run}",
            "The generative model samples objects, then parts, and renders an image. The more the images look like "
            "digits, the more of a digit's geometry the objects have learned.",
            f"A row of images sampled from the prior of {run}.",
            partial(pictures.samples, arrays["prior_samples"]),
        ),
        "objects": (
            f"What the objects of {run} explain",
            "An object owns the images of which it explains more parts than any other object. Of "
            f"{len(arrays['object_classes'])} objects, {owned} own images. Each column shows an object: the mean of "
            "its images, and the mean of the parts that it explains in them. If an object is an arrangement of "
            "strokes, its mean image is sharp, and most of its images are of one class.",
            "Two rows of pictures, with a column for each object that owns images, its most common class above it.",
            partial(objects, arrays),
        ),
    }
    for name, (title, caption, alt, figure) in figures.items():
        yield Drawing(f"{name}-{run}", "png", title, caption, alt, numbers.records, figure)


def objects(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draw mean images and parts of the objects that own the most images (see `object_examples` in `evaluation/`)."""
    classes = arrays["object_classes"]
    images = classes.sum(1)
    order = [i for i in np.argsort(-images, kind="stable")[: pictures.MOST_COLUMNS] if images[i]]
    shares = [(classes[i].max() / images[i], images[i] / images.sum()) for i in order]
    percent = [[f"{100 * share:.0f}" if share >= 0.01 else "<1" for share in each] for each in shares]
    headings = ["\n".join([str(classes[i].argmax()), *each]) for i, each in zip(order, percent, strict=True)]
    rows = [(f"mean of {name}", arrays[f"object_{name}"][order]) for name in ("images", "parts")]
    names = "most common class\nits % of the object's images\nthe object's % of all images"
    return pictures.image_rows(rows, headings, names)


def _part_use(results: Results, sweep: Sweep) -> Iterator[Drawing]:
    consistency = sweep.measured("consistency")
    if len(consistency) < 2:
        return
    ends, names = (min(consistency), max(consistency)), ("images", "arrangements")
    narrow, wide = (results.examples("sweep", sweep.items[angle].path.stem, names) for angle in ends)
    if not (narrow and wide):
        return
    rows = [("digits", narrow["images"])]
    for angle, arrays in zip(ends, (narrow, wide), strict=True):
        rows.append((f"{name_of_test(f'rotated_{angle:g}')}\n{consistency[angle].mean:.2f}", arrays["arrangements"]))
    yield Drawing(
        f"part-use-{sweep.run}",
        "png",
        f"Part use with narrow and with wide rotations, {sweep.run}",
        "In the paper's Figure 7, a stroke is drawn by the same part in every digit if rotations in training and test "
        "are narrow, and by different parts if they are wide. The number below each range is the consistency: 1 if a "
        "stroke always has the same part, 0 if parts agree only by chance. The claim about this figure tells whether "
        "the training or the test makes the difference.",
        "Digits of one class. Below, their reconstructions by a model trained on narrow and a model trained on wide "
        "rotations, rotated back upright, in a colour for each part.",
        [record for angle in ends for record in sweep.items[angle].records],
        partial(pictures.image_rows, rows),
    )
