"""The checks of document 000's claims about failure modes (section 5.4, Figures 5 to 7).

Figures 5 and 6 use the run that answers Table 1, Figure 7 uses the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results, with_training
from pipeline.systems.generative.report.runs import (
    evaluated_capsules,
    shortcomings,
    sweep_of,
    swept_angles,
    swept_shortcomings,
    tested_on,
    unswept,
)

MANY = 0.5
"""Share of the templates that must have a copy for "many are near affine copies" to hold."""


def deviations(numbers: Numbers, layer: str, measure: str) -> dict[float, Measured]:
    """One measure of a layer's equivariance by angle (degrees), in order."""
    found = {
        float(angle): numbers.measured("equivariance", layer, angle, measure)
        for angle in numbers.names("equivariance", layer)
    }
    return {angle: value for angle, value in sorted(found.items()) if value is not None}


def grows(values: Sequence[Measured]) -> bool:
    """Whether values grow along the sequence: the last is above the first, and no step falls by more than its noise.

    A step's noise is the larger of the sds of its two ends.
    """
    steps = pairwise(values)
    no_fall = all(after.mean >= before.mean - max(before.sd, after.sd) for before, after in steps)
    return no_fall and values[-1].mean > values[0].mean


def parts_do_not_turn(results: Results) -> Finding | None:
    """Figure 5: part poses deviate from the rotated poses, and deviate more at larger angles.

    They deviate if the root mean square at the largest angle exceeds the smallest sd c that the model allows for a part
    around its parent's vote: beyond that the parts no longer form the same arrangement.
    """
    found = evaluated_capsules(results)
    if found is None:
        return None
    run, numbers = found
    deviation, missed = (list(deviations(numbers, "parts", each).values()) for each in ("deviation", "missed"))
    if len(deviation) < 2 or len(missed) < 2:
        return None
    return Finding(
        missed[-1].scaled(100),
        dataset_label(numbers.records),
        with_training(results, numbers, run),
        holds=deviation[-1].mean > numbers.run(run).model.pose_sd_floor and grows(deviation),
        # The paper shows one digit, and gives no number of seeds or test images to compare with.
        remarks=shortcomings(numbers, run),
        notes=[tested_on(numbers, run, numbers.settings.failures.images)],
    )


def templates_are_copies(results: Results) -> Finding | None:
    """Figure 6: at least half the templates have an affine copy, and copies are more common than among strokes.

    Strokes of the digits are themselves similar up to affine maps. A share of pairs says something about the templates
    only if it exceeds that of strokes, faded at their edges as the templates are, by more than that share varies
    between samples of strokes (one sd).
    """
    found = evaluated_capsules(results)
    if found is None:
        return None
    run, numbers = found
    names = ("pairs", "copied", "faded_strokes_pairs", "faded_strokes_pairs_sd")
    pairs, copied, strokes, noise = (numbers.measured("templates", name) for name in names)
    if pairs is None or copied is None or strokes is None or noise is None:
        return None
    return Finding(
        pairs.scaled(100),
        dataset_label(numbers.records),
        with_training(results, numbers, run),
        holds=copied.mean >= MANY and pairs.mean > strokes.mean + noise.mean,
        remarks=shortcomings(numbers, run),
        notes=[
            f"strokes: {strokes.scaled(100).mean:.1f} ± {noise.scaled(100).mean:.1f} % of the pairs",
            tested_on(numbers, run, numbers.settings.failures.images),
        ],
    )


def wide_training_breaks_part_use(results: Results) -> Finding | None:
    """Figure 7: parts are used less consistently after training on the widest range than on the narrowest.

    The sweep must have part use at all angles that any run was swept at, and its run must have been evaluated on the
    widest range. The difference must exceed the noise, which is the larger of the two sds over seeds. So must the
    difference from that run, which was trained on narrower images, on test images of the widest range: consistency
    falls with the range of the test images for any training if parts stay in their places while images turn.
    """
    sweep = sweep_of(results, results.evidence.generative.sweep.get("capsules"))
    consistency = sweep.measured("consistency") if sweep else {}
    if sweep is None or len(consistency) < 2 or consistency.keys() != swept_angles(results):
        return None
    narrow, wide = min(consistency), max(consistency)
    if (found := unswept(results, sweep, wide)) is None:
        return None
    evaluation, control = found
    after, used = consistency[wide], [sweep.items[narrow], sweep.items[wide]]
    return Finding(
        consistency[narrow].minus(after),
        dataset_label(sweep.items[wide].records),
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
"""The measures of these claims."""
