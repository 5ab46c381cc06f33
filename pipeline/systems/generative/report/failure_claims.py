"""How the claims of document 000 on its failure modes (section 5.4, Figures 5 to 7) are answered.

Figures 5 and 6 look at the run that answers Table 1, Figure 7 at the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipeline.results.findings import Evidence, Finding, Measure
from pipeline.results.reading import Measured, Numbers, dataset_label
from pipeline.systems.generative.report.runs import (
    candidates,
    count_test_images,
    shortcomings,
    sweep_item,
    swept,
    with_training,
)
from pipeline.systems.generative.settings import GenerativeRun

MANY = 0.5
"""Share of the templates that need a copy for "many are near affine copies" to hold."""


def deviations(numbers: Numbers, layer: str, measure: str) -> dict[float, Measured]:
    """One measure of a layer's equivariance by angle (degrees), in order."""
    found = {
        float(angle): numbers.measured("equivariance", layer, angle, measure)
        for angle in numbers.names("equivariance", layer)
    }
    return {angle: value for angle, value in sorted(found.items()) if value is not None}


def grows(values: Sequence[Measured]) -> bool:
    """Whether values grow along the sequence: the last above the first, and no step down by more than its noise.

    A step's noise is the larger of the two sds at its ends.
    """
    steps = pairwise(values)
    no_fall = all(after.mean >= before.mean - max(before.sd, after.sd) for before, after in steps)
    return no_fall and values[-1].mean > values[0].mean


def parts_do_not_turn(evidence: Evidence) -> Finding | None:
    """Figure 5: part poses deviate from the turned ones, the more the further the image turns.

    They deviate where the root mean square exceeds, at the widest angle, the least sd c that the model allows a part
    around its parent's vote: that far off, the parts are not the arrangement they were.
    """
    for run in candidates(evidence.params, "generative"):
        settings, numbers = evidence.params.runs[run], evidence.results.numbers("evaluate", run)
        if numbers is None or not isinstance(settings, GenerativeRun):
            continue
        deviation, missed = (list(deviations(numbers, "parts", each).values()) for each in ("deviation", "missed"))
        if len(deviation) < 2 or len(missed) < 2:
            continue
        return Finding(
            missed[-1].scaled(100),
            dataset_label(numbers.records),
            with_training(evidence, run, numbers),
            holds=deviation[-1].mean > settings.model.pose_sd_floor and grows(deviation),
            # The paper shows one digit: no number of seeds or of test images to fall short of.
            remarks=shortcomings(evidence.params, run),
        )
    return None


def templates_are_copies(evidence: Evidence) -> Finding | None:
    """Figure 6: at least half the templates have an affine copy, and copies are commoner than among strokes.

    Strokes of the digits themselves are alike up to affine maps. Where a share of pairs is no higher than theirs, by
    more than as many strokes drawn anew differ (one sd), it says nothing about the templates.
    """
    for run in candidates(evidence.params, "generative"):
        numbers = evidence.results.numbers("evaluate", run)
        names = ("pairs", "copied", "strokes_pairs", "strokes_pairs_sd")
        pairs, copied, strokes, noise = (numbers.measured("templates", name) if numbers else None for name in names)
        if numbers is None or pairs is None or copied is None or strokes is None or noise is None:
            continue
        return Finding(
            pairs.scaled(100),
            dataset_label(numbers.records),
            with_training(evidence, run, numbers),
            holds=copied.mean >= MANY and pairs.mean > strokes.mean + noise.mean,
            remarks=shortcomings(evidence.params, run),
        )
    return None


def consistencies(evidence: Evidence) -> tuple[str, list[Numbers], dict[float, Measured]] | None:
    """The first sweep with part use at two angles or more: run, numbers, and consistency by angle."""
    for run in swept(evidence.params, "generative"):
        found: dict[float, Measured] = {}
        items: list[Numbers] = []
        for angle in sorted(evidence.params.sweep.angles):
            numbers = evidence.results.numbers("sweep", sweep_item(run, angle))
            value = numbers.measured("consistency") if numbers else None
            if numbers and value:
                found[angle] = value
                items.append(numbers)
        if len(found) > 1:
            return run, items, found
    return None


def wide_training_breaks_part_use(evidence: Evidence) -> Finding | None:
    """Figure 7: after the widest training range parts are used less consistently than after the narrowest.

    Less by more than the noise: the larger of the two sds over seeds.
    """
    found = consistencies(evidence)
    if found is None:
        return None
    run, items, by_angle = found
    values = list(by_angle.values())
    narrow, wide = values[0], values[-1]
    return Finding(
        narrow.minus(wide),
        dataset_label(items[-1].records),
        [*items[0].records, *items[-1].records],
        holds=wide.mean < narrow.mean - max(wide.sd, narrow.sd),
        remarks=shortcomings(
            evidence.params, run, images=min(evidence.params.failures.images, count_test_images(evidence.params, run))
        ),
    )


MEASURES: dict[str, Measure] = {
    "000.fig5": parts_do_not_turn,
    "000.fig6": templates_are_copies,
    "000.fig7": wide_training_breaks_part_use,
}
"""As `document_000.MEASURES`."""
