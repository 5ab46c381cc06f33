"""What the capsules have learnt, and where they fail (document 000, section 5.4, Figures 5 to 7).

Claims about Figures 5 and 6 rest on the run that answers Table 1, those about Figure 7 on the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.films import turning
from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.reading import Numbers, Results, with_training
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

MANY = 0.5
"""Share of the templates that must have a copy for "many are near affine copies" to hold."""
_TURNED = ("angles", "images", "reconstructions", "arrangements", "frames", "presences", "colours")
_EVALUATED = (
    "templates", "alphas", "prior_samples", "object_classes", "object_images", "object_parts", "pair_parts",
    "pair_correlation", "pair_first", "pair_second", "pair_aligned",
)  # fmt: skip


def unswept(results: Results, sweep: Sweep, angle: float) -> tuple[Numbers, Measured] | None:
    """The evaluation of the run that was swept, and its consistency of part use on test images within +-angle degrees;
    None where this was not measured, or the run's own training images turn as far.
    """
    numbers = results.numbers("evaluate", sweep.run)
    if numbers is None or numbers.run(sweep.run).augmentation.rotation >= angle:
        return None
    value = numbers.measured("part_use", f"{angle:g}", "consistency")
    return None if value is None else (numbers, value)


def parts_do_not_turn(results: Results) -> Finding | None:
    """Figure 5: part poses deviate from the rotated poses, and deviate more at larger angles.

    They deviate if the root mean square at the largest angle exceeds the smallest sd c that the model allows for a part
    around its parent's vote: beyond that the parts no longer form the same arrangement.
    """
    run, numbers = evaluated_capsules(results)
    angles = sorted(numbers.names("equivariance", "parts"), key=float)
    if len(angles) < 2:
        return None
    deviation = [numbers.needed("equivariance", "parts", angle, "deviation") for angle in angles]
    missed = numbers.needed("equivariance", "parts", angles[-1], "missed").scaled(100)
    holds = deviation[-1].mean > numbers.run(run).model.pose_sd_floor and rises(deviation)
    # The paper shows one digit, and gives no number of seeds or test images to compare with.
    notes = [tested_on(numbers, run, numbers.settings.failures.images)]
    return answer(results, numbers, run, missed, holds=holds, notes=notes)


def templates_are_copies(results: Results) -> Finding:
    """Figure 6: at least half the templates have an affine copy, and copies are more common than among strokes.

    Strokes of the digits are themselves similar up to affine maps. A share of pairs says something about the templates
    only if it exceeds that of strokes, faded at their edges as the templates are, by more than that share varies
    between samples of strokes (one sd).
    """
    run, numbers = evaluated_capsules(results)
    names = ("pairs", "copied", "faded_strokes_pairs", "faded_strokes_pairs_sd")
    pairs, copied, strokes, noise = (numbers.needed("templates", name) for name in names)
    holds = copied.mean >= MANY and pairs.mean > strokes.mean + noise.mean
    notes = [
        f"strokes: {strokes.scaled(100).mean:.1f} ± {noise.scaled(100).mean:.1f} % of the pairs",
        tested_on(numbers, run, numbers.settings.failures.images),
    ]
    return answer(results, numbers, run, pairs.scaled(100), holds=holds, notes=notes)


def wide_training_breaks_part_use(results: Results) -> Finding | None:
    """Figure 7: parts are used less consistently after training on the widest range than on the narrowest.

    The difference must exceed the noise, which is the larger of the two sds over seeds. So must the difference from the
    run itself, which was trained on narrower images, on test images of the widest range: consistency falls with the
    range of the test images for any training if parts stay in their places while images turn.
    """
    sweep, consistency = complete_sweep(results, "capsules", "consistency")
    narrow, wide = min(consistency), max(consistency)
    unrotated = unswept(results, sweep, wide)
    if unrotated is None or narrow == wide:
        return None
    evaluation, control = unrotated
    after, used = consistency[wide], [sweep.items[narrow], sweep.items[wide]]
    return Finding(
        consistency[narrow].minus(after),
        [*(record for each in used for record in each.records), *with_training(results, evaluation, sweep.run)],
        holds=all(before.mean - after.mean > max(before.sd, after.sd) for before in (consistency[narrow], control)),
        remarks=swept_shortcomings(used, images=used[1].settings.failures.images),
        notes=[
            f"test images within ±{wide:g}°: {after.mean:.2f} after training on this range, "
            f"{control.mean:.2f} after that of {sweep.run}"
        ],
    )


MEASURES: dict[str, Measure] = {
    "000.fig5": parts_do_not_turn,
    "000.fig6": templates_are_copies,
    "000.fig7": wide_training_breaks_part_use,
}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A digit as it turns; templates, objects and samples of each run; part use over ranges of rotation."""
    for study, numbers in results.executed("turn"):
        if arrays := written.examples(results, "turn", study, _TURNED):
            yield _turned(study, numbers, arrays)
    for run, numbers in evaluated(results).items():
        capsules = numbers.run(run).variant == "generative"
        if capsules and (arrays := written.examples(results, "evaluate", run, _EVALUATED)):
            yield from _learnt(run, numbers, arrays)
    for sweep in sweeps(results).values():
        consistency = sweep.measured("consistency")
        if len(consistency) > 1:
            ends = {angle: consistency[angle] for angle in (min(consistency), max(consistency))}
            found = [
                written.examples(results, "sweep", sweep.items[angle].path.stem, ("images", "arrangements"))
                for angle in ends
            ]
            if all(found):
                yield _part_use(sweep, ends, [arrays for arrays in found if arrays])


def _turned(study: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> Drawing:
    names = {"images": "input", "reconstructions": "reconstruction", "arrangements": "parts in colour"}
    strips = [(words, arrays[name]) for name, words in names.items()]
    tracks = (arrays[name] for name in ("frames", "presences", "colours"))
    return Drawing(
        f"turning-{study}",
        "png",
        f"A digit rotated through 360 degrees, {study}",
        "The encoder sees each picture alone. If it found the same parts in a rotated digit, their frames would rotate "
        "with it, their presences would stay and colours would not change (the paper's Figure 5). In the page's film, "
        "frames are the squares of the parts' templates, the stronger the more present a part is; thick is a "
        "template's top.",
        "One digit rotated step by step; below it its reconstruction and its parts, one colour each.",
        numbers.records,
        partial(pictures.over_rotation, arrays["angles"], [(name, each / 255) for name, each in strips]),
        film=turning(arrays["angles"], strips, *tracks),
    )


def _learnt(run: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> Iterator[Drawing]:
    threshold = numbers.settings.failures.threshold
    owned = int((arrays["object_classes"].sum(1) > 0).sum())
    figures: dict[str, tuple[str, str, str, Callable[[], Figure]]] = {
        "templates": (
            f"Templates learned by {run}",
            "Look for templates that look like strokes, for parts that are never used (blank or grainy alpha channel), "
            "and for templates that are rotated or stretched copies of each other (as in the paper's Figure 6).",
            f"The {len(arrays['templates'])} templates of {run} in a row, with their alpha channels below.",
            partial(pictures.templates, arrays["templates"], arrays["alphas"]),
        ),
        "copies": (
            f"Templates that are affine copies of each other, {run}",
            f"Pairs that correlate by {threshold:g} or more under the best affine map, the best first, each part in "
            "one pair at most: if the mapped second template looks like the first, two parts can draw the same stroke "
            "(as in the paper's Figure 6). Only parts that are used are shown.",
            "Similar pairs of templates, each in a column: the first, the second, and this mapped onto the first.",
            partial(template_copies, arrays, threshold),
        ),
        "prior": (
            f"Samples from the prior of {run}",
            "Objects, then parts, then pixels sampled from the generative model. The more the strokes look like "
            "digits, the more of a digit's geometry the objects have learned.",
            f"A grid of images sampled from the prior of {run}.",
            partial(pictures.samples, arrays["prior_samples"]),
        ),
        "objects": (
            f"What the objects of {run} explain",
            "Each column is an object; its images are those in which it owns more parts than any other object. Mean of "
            f"these images, and of the parts that the object owns in them. Of {len(arrays['object_classes'])} objects "
            f"{owned} own an image; one that stands for an arrangement of strokes has a sharp mean image of mostly one "
            "class.",
            "Two rows of pictures, a column for each object, with the most common class above.",
            partial(objects, arrays),
        ),
    }
    for name, (title, caption, alt, figure) in figures.items():
        if name != "copies" or len(arrays["pair_parts"]):
            yield Drawing(f"{name}-{run}", "png", title, caption, alt, numbers.records, figure)


def template_copies(arrays: Mapping[str, np.ndarray], threshold: float) -> Figure:
    """The pairs of templates that count as copies, the best first, and the second mapped onto the first.

    Args:
        arrays: of `evaluation.templates.template_copies`; pairs have each part once, so the last need not be similar.
        threshold: two templates with at least this correlation count as copies; the best pair is shown in any case.
    """
    shown = max(1, int((arrays["pair_correlation"] >= threshold).sum()))
    pairs = list(zip(arrays["pair_parts"], arrays["pair_correlation"], strict=True))[:shown]
    names = {"first": "first", "second": "second", "aligned": "second, mapped"}
    rows = [(words, arrays[f"pair_{name}"][:shown]) for name, words in names.items()]
    headings = [f"{first + 1:g}, {second + 1:g}\n{correlation:.2f}" for (first, second), correlation in pairs]
    return pictures.image_rows(rows, headings, "parts\ncorrelation")


def objects(arrays: Mapping[str, np.ndarray]) -> Figure:
    """The most used objects: means of the images that they own and of their parts.

    Args:
        arrays: of `evaluation.examples.object_examples`.
    """
    classes = arrays["object_classes"]
    images = classes.sum(1)
    order = [i for i in np.argsort(-images, kind="stable")[: pictures.MOST_COLUMNS] if images[i]]
    shares = [(classes[i].max() / images[i], images[i] / images.sum()) for i in order]
    percent = [[f"{100 * share:.0f}" if share >= 0.01 else "<1" for share in each] for each in shares]
    headings = ["\n".join([str(classes[i].argmax()), *each]) for i, each in zip(order, percent, strict=True)]
    rows = [
        ("mean of its images", arrays["object_images"][order]),
        ("mean of its parts", arrays["object_parts"][order]),
    ]
    names = "most common class\nits share of these images (%)\nshare of all images (%)"
    return pictures.image_rows(rows, headings, names)


def _part_use(sweep: Sweep, ends: Mapping[float, Measured], found: Sequence[Mapping[str, np.ndarray]]) -> Drawing:
    rows = [("digits", found[0]["images"])]
    for (angle, consistency), arrays in zip(ends.items(), found, strict=True):
        rows.append((f"{name_of_test(f'rotated_{angle:g}')}\n{consistency.mean:.2f}", arrays["arrangements"]))
    return Drawing(
        f"part-use-{sweep.run}",
        "png",
        f"Part use on narrow and wide rotations, {sweep.run}",
        "Trained and tested on narrow rotations, the same part draws the same stroke of every digit; on wide "
        "rotations, different parts draw it (the paper's Figure 7). The number below each range is the consistency: 1 "
        "if it is always the same part, 0 for chance. The table of part use tells whether the training or the test "
        "makes the difference.",
        "Digits of one class; below them how models trained on narrow and on wide rotations draw them, one colour "
        "per part, rotated back upright.",
        [record for angle in ends for record in sweep.items[angle].records],
        partial(pictures.image_rows, rows),
    )


def build(results: Results) -> list[Table]:
    """Figures 5 and 7 in numbers."""
    return [*equivariance(results), *part_use(results)]


def equivariance(results: Results) -> list[Table]:
    """Figure 5 in numbers."""
    heads = {
        "deviation": ("deviation", 3),
        "unfollowed": ("if poses did not rotate", 3),
        "missed": ("share missed", 2),
    }
    rows: list[Row] = [
        ([run, layer, float(angle)], cells(numbers, heads, "equivariance", layer, angle), numbers)
        for run, numbers in evaluated(results).items()
        for layer in numbers.names("equivariance")
        for angle in sorted(numbers.names("equivariance", layer), key=float)
    ]
    caption = (
        "Difference between the poses found in an image rotated by the angle (degrees) and the rotated poses of the "
        "upright image: presence-weighted root mean square over the six numbers of a pose, in half widths of the "
        "image. For comparison, the same for poses that do not rotate."
    )
    return measured_table("equivariance", "Poses in rotated images", caption, ["run", "layer", "angle"], heads, rows)


def part_use(results: Results) -> list[Table]:
    """Figure 7 in numbers."""
    heads = {
        "consistency": ("consistency of part use", 2),
        "pairs": ("template pairs alike (%)", 1),
        "copied": ("templates with a copy (%)", 1),
    }
    rows: list[Row] = []
    for sweep in sweeps(results).values():
        consistency = sweep.measured("consistency")
        for angle, measured in consistency.items():
            numbers = sweep.items[angle]
            found = cells(numbers, heads, "duplicates")
            found["consistency"] = measured
            rows.append(([sweep.run, angle, angle], found, numbers))
        for angle in consistency:
            if other := unswept(results, sweep, angle):
                numbers, _ = other
                own = float(numbers.run(sweep.run).augmentation.rotation)
                rows.append(([sweep.run, own, angle], cells(numbers, heads, "part_use", f"{angle:g}"), numbers))
    caption = (
        "Images rotated within an angle (degrees), in training and in the test: how often the same part draws a pixel "
        "in two digits of a class, corrected for chance (Scott's pi: 1 always, 0 as often as by chance); how many "
        "templates are affine copies of each other. Parts that stay at their places are used less consistently on "
        "wider rotations after any training: compare trainings on the same test images."
    )
    keys = ["run", "trained within", "tested within"]
    return measured_table("part-use", "Consistency of part use over ranges of rotation", caption, keys, heads, rows)
