"""Claims and figures about learned parts and objects, and their failures (document 000, section 5.4, Figures 5 to 7).

Claims about Figures 5 and 6 rest on the run that answers Table 1. The claim about Figure 7 rests on the sweep.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.films import turning
from pipeline.results.findings import Finding, Measure
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

_TURNED = ("angles", "images", "reconstructions", "arrangements", "frames", "presences", "colours")
_EVALUATED = ("templates", "alphas", "prior_samples", "object_classes", "object_images", "object_parts")


def parts_do_not_turn(results: Results) -> Finding | None:
    """Figure 5: the share (%) of the rotation that part poses miss at the largest angle (`evaluation.equivariance`).

    The claim holds if the deviation of poses from this rotation rises with the angle, and at the largest angle exceeds
    `pose_sd_floor`, the smallest sd of a part's pose around an object's vote. Beyond it, parts form other arrangements.
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
    """Figure 6: percent of the pairs of templates that are affine copies of each other.

    The claim holds if at least half of the templates have a copy, and if the share of pairs exceeds the share among
    strokes of digits by more than one sd over samples of strokes. Strokes are the control, because they are similar up
    to affine maps. They are faded at their edges as templates are.
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


def wide_training_breaks_part_use(results: Results) -> Finding | None:
    """Figure 7: consistency of part use after training and test on the narrowest range, minus the same on the widest.

    If parts stay in place while images rotate, consistency falls as the test range grows, for any training. So a
    control is tested on the widest range: the run with its own, narrower training range. The claim holds if our number,
    and the control's consistency minus that after the widest training, each exceed the larger sd of their two terms.
    """
    sweep, consistency = complete_sweep(results, "capsules", "consistency")
    narrow, wide = min(consistency), max(consistency)
    _, evaluation = results.answering("evaluate", sweep.run)
    if narrow == wide or evaluation.run(sweep.run).augmentation.rotation >= wide:
        return None
    control = evaluation.needed("part_use", f"{wide:g}", "consistency")
    after, used = consistency[wide], [sweep.items[narrow], sweep.items[wide]]
    return Finding(
        consistency[narrow].minus(after),
        [*(record for each in used for record in each.records), *with_training(results, evaluation, sweep.run)],
        holds=all(before.mean - after.mean > max(before.sd, after.sd) for before in (consistency[narrow], control)),
        remarks=swept_shortcomings(used, images=used[1].settings.failures.images),
        notes=[
            f"consistency on test images within ±{wide:g}°: {after.mean:.2f} after training on this range, "
            f"{control.mean:.2f} after the training of {sweep.run}"
        ],
    )


MEASURES: dict[str, Measure] = {
    "000.fig5": parts_do_not_turn,
    "000.fig6": templates_are_copies,
    "000.fig7": wide_training_breaks_part_use,
}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Figures of a rotating digit; templates, objects and samples of each run; part use over ranges of rotation."""
    for study, numbers in results.executed("turn"):
        if arrays := written.examples(results, "turn", study, _TURNED):
            yield _turned(study, numbers, arrays)
    for run, numbers in evaluated(results).items():
        capsules = numbers.run(run).variant == "generative"
        if capsules and (arrays := written.examples(results, "evaluate", run, _EVALUATED)):
            yield from _learnt(run, numbers, arrays)
    for sweep in sweeps(results).values():
        yield from _part_use(results, written, sweep)


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
        "frames are the squares of the parts' templates: the more present a part, the stronger its frame. The thick "
        "edge is the template's top.",
        "One digit rotated step by step; below it its reconstruction and its parts, one colour each.",
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
            "Objects, then parts, then pixels sampled from the generative model. The more the strokes look like "
            "digits, the more of a digit's geometry the objects have learned.",
            f"A row of images sampled from the prior of {run}.",
            partial(pictures.samples, arrays["prior_samples"]),
        ),
        "objects": (
            f"What the objects of {run} explain",
            "Each column is an object; its images are those in which it owns more parts than any other object. Mean of "
            f"these images, and of the parts that the object owns in them. Of {len(arrays['object_classes'])} objects "
            f"{owned} have such images. An object that is an arrangement of strokes has a sharp mean image, mostly of "
            "one class.",
            "Two rows of pictures, a column for each object, with the most common class above.",
            partial(objects, arrays),
        ),
    }
    for name, (title, caption, alt, figure) in figures.items():
        yield Drawing(f"{name}-{run}", "png", title, caption, alt, numbers.records, figure)


def objects(arrays: Mapping[str, np.ndarray]) -> Figure:
    """A figure of the objects that own most images: the mean of an object's images, and of its parts in them. The
    arrays are from `evaluation.examples.object_examples`.
    """
    classes = arrays["object_classes"]
    images = classes.sum(1)
    order = [i for i in np.argsort(-images, kind="stable")[: pictures.MOST_COLUMNS] if images[i]]
    shares = [(classes[i].max() / images[i], images[i] / images.sum()) for i in order]
    percent = [[f"{100 * share:.0f}" if share >= 0.01 else "<1" for share in each] for each in shares]
    headings = ["\n".join([str(classes[i].argmax()), *each]) for i, each in zip(order, percent, strict=True)]
    rows = [(f"mean of its {name}", arrays[f"object_{name}"][order]) for name in ("images", "parts")]
    names = "most common class\nits share of these images (%)\nshare of all images (%)"
    return pictures.image_rows(rows, headings, names)


def _part_use(results: Results, written: Written, sweep: Sweep) -> Iterator[Drawing]:
    consistency = sweep.measured("consistency")
    if len(consistency) < 2:
        return
    ends, names = (min(consistency), max(consistency)), ("images", "arrangements")
    narrow, wide = (written.examples(results, "sweep", sweep.items[angle].path.stem, names) for angle in ends)
    if not (narrow and wide):
        return
    rows = [("digits", narrow["images"])]
    for angle, arrays in zip(ends, (narrow, wide), strict=True):
        rows.append((f"{name_of_test(f'rotated_{angle:g}')}\n{consistency[angle].mean:.2f}", arrays["arrangements"]))
    yield Drawing(
        f"part-use-{sweep.run}",
        "png",
        f"Part use on narrow and wide rotations, {sweep.run}",
        "Trained and tested on narrow rotations, the same part draws the same stroke of every digit; on wide "
        "rotations, different parts draw it (the paper's Figure 7). The number below each range is the consistency: 1 "
        "if it is always the same part, 0 for chance. The claim about this figure tells whether the training or the "
        "test makes the difference.",
        "Digits of one class; below them how models trained on narrow and on wide rotations draw them, one colour "
        "per part, rotated back upright.",
        [record for angle in ends for record in sweep.items[angle].records],
        partial(pictures.image_rows, rows),
    )
