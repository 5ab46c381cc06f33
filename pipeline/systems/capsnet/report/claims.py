"""The checks of document 001's claims about CapsNet.

`runs` decides which results belong to which condition and in which order; the first that has all the numbers needed is
used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.results.findings import Finding, Measure
from pipeline.results.reading import SIGNIFICANT_SES, Measured, Results, dataset_label, distinct
from pipeline.systems.capsnet.report.runs import (
    ALMOST_ALL,
    FORWARD,
    PAPER_RATE,
    PLAIN,
    SPARSER,
    START,
    Condition,
    Network,
    candidates,
    like,
    networks,
    pairs,
    records_of,
    shortcomings,
    studies,
    unrouted_with_middle,
    without_middle,
)

FIRST_EPOCHS, SLOWER = 3, 1.05
"""Learning "starts slower" if the loss is higher by at least this factor, as a geometric mean over the first epochs."""
LIKE_LOSS = 1.5
"""Two best losses are "nearly the same" up to this ratio (the paper's figure has a logarithmic axis)."""
LIKE_SPARSITY, SPARSE = 0.1, 0.5
"""Largest difference of two Hoyer indices that count as alike; smallest index that counts as sparse."""
MOSTLY = 0.5
"""Share of saturated capsules from which on a layer counts as saturated."""


def _accuracy(condition: Condition) -> Measure:
    """Appendix A: test accuracy (percent), with the longest class capsule as the answer."""

    def measure(results: Results) -> Finding | None:
        for network in candidates(networks(results, "evaluate"), condition):
            accuracy = network.numbers.measured("test", "accuracy")
            if accuracy:
                records = records_of(results, network)
                remarks = shortcomings(network)
                return Finding(accuracy.scaled(100), dataset_label(records), records, remarks=remarks)
        return None

    return measure


def _losses(results: Results, network: Network) -> pd.DataFrame | None:
    """Validation losses `[epochs, replicas]` of a training."""
    table = results.table("train", network.item, ("replica", "epoch", "validation_loss"))
    return None if table is None else table.pivot_table(index="epoch", columns="replica", values="validation_loss")


def slower_to_the_same_loss(results: Results) -> Finding | None:
    """Figure 2: without routing the loss is higher in the first epochs and nearly the same at its best, both with and
    without reconstruction. Our number is the ratio of the best losses without and with routing, with reconstruction,
    over replicas.
    """
    trained = networks(results, "train")
    ratios: list[Measured] = []
    slower: list[float] = []
    used: list[Network] = []
    notes: list[str] = []
    for reconstructed in (True, False):
        for routed, unrouted in pairs(trained, reconstructed=reconstructed):
            with_, without = _losses(results, routed), _losses(results, unrouted)
            if with_ is None or without is None:
                continue
            best = without.min() / with_.min()
            ratios.append(Measured(float(best.mean()), float(best.std()) if len(best) > 1 else 0.0, len(best)))
            first = min(len(with_), len(without), FIRST_EPOCHS)
            early = np.log(without.to_numpy()[:first] / with_.to_numpy()[:first])
            slower.append(float(np.exp(early.mean())))
            used += [routed, unrouted]
            notes.append(
                f"{'with' if reconstructed else 'without'} reconstruction, loss without routing / with it: "
                f"{slower[-1]:.2f} in the first {FIRST_EPOCHS} epochs, {ratios[-1].mean:.2f} at best"
            )
            break
        else:
            return None
    records = records_of(results, *used)
    same = all(1 / LIKE_LOSS < ratio.mean < LIKE_LOSS for ratio in ratios)
    holds = same and all(ratio > SLOWER for ratio in slower)
    remarks = ["loss of shifted validation images (paper: test)", *shortcomings(*used)]
    return Finding(ratios[0], dataset_label(records), records, holds=holds, remarks=remarks, notes=notes)


def _index(network: Network, condition: str, layer: str = "class") -> Measured | None:
    return network.numbers.measured("condition", condition, layer, "hoyer")


def sparse_without_routing(results: Results) -> Finding | None:
    """Figure 1B-C: Hoyer's index of the class capsules' lengths after the forward pass, with routing minus without."""
    for routed, unrouted in pairs(studies(results), reconstructed=True):
        with_, without = _index(routed, FORWARD), _index(unrouted, FORWARD)
        if with_ is None or without is None:
            continue
        records = records_of(results, routed, unrouted)
        return Finding(
            with_.minus(without),
            dataset_label(records),
            records,
            holds=abs(with_.mean - without.mean) <= LIKE_SPARSITY and min(with_.mean, without.mean) >= SPARSE,
            remarks=shortcomings(routed, unrouted),
            notes=[f"index {with_.mean:.2f} with routing, {without.mean:.2f} without"],
        )
    return None


def sparse_only_with_l1(results: Results) -> Finding | None:
    """Figure 1D-E: Hoyer's index after inference with the label clamped, with L1 minus without a penalty.

    The claim holds if inference is sparse with L1 and not without, and in both cases the correct capsule is longest in
    almost all images and the energy never rises in almost all of them.
    """
    for study in candidates(studies(results), Condition(routed=False, reconstructed=True)):
        if finding := _sparser(results, study):
            return finding
    return None


def _with_error(study: Network, condition: str) -> str:
    """The mean index of the class capsules with its standard error over images, such as "0.874 ± 0.003"."""
    index, error = (
        study.numbers.number("condition", condition, "class", measure, "mean")
        for measure in ("hoyer", "hoyer_standard_error")
    )
    return "unknown" if index is None else f"{index:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _sparser(results: Results, study: Network) -> Finding | None:
    """The finding of one study, or None if it lacks a number."""
    numbers = study.numbers
    first, plain = (_index(study, condition) for condition in (SPARSER, PLAIN))
    images = numbers.number("images") or 0
    right, falls = (
        [numbers.number("condition", condition, "class", measure, "mean") for condition in (SPARSER, PLAIN)]
        for measure in ("right", "falls")
    )
    shares = [share for share in (*right, *falls) if share is not None]
    if first is None or plain is None or len(shares) < len(right) + len(falls):
        return None
    with_l1, without, start = (_with_error(study, condition) for condition in (SPARSER, PLAIN, START))
    notes = [
        f"index {with_l1} with L1, {without} without, {start} before inference "
        f"(standard errors over {images:.0f} images)",
        f"the correct capsule is longest in {100 * min(shares[:2]):.0f} % of images, and the energy never rises in "
        f"{100 * min(shares[2:]):.0f} %, by the worse of both conditions",
    ]
    remarks = shortcomings(study)
    if study.inference and study.inference.rate != PAPER_RATE:
        remarks.append(f"inference at rate {study.inference.rate:g} (paper: {PAPER_RATE})")
    return Finding(
        first.minus(plain), dataset_label(numbers.records), records_of(results, study),
        holds=first.mean >= SPARSE > plain.mean and min(shares) >= ALMOST_ALL, remarks=remarks, notes=notes,
    )  # fmt: skip


@dataclass(frozen=True)
class _Middle:
    """A network with a middle layer: Hoyer's indices, and accuracies (shares) with and without that layer.

    Attributes:
        saturated, length_sd, inputs: of the middle layer, see the study; None in results that did not measure them.
        compared: the evaluations of both networks.
    """

    study: Network
    index: Measured
    output: Measured
    saturated: float | None
    length_sd: float | None
    inputs: float | None
    accuracy: Measured
    without: Measured
    compared: list[Network]

    @property
    def tells(self) -> bool:
        """Whether lengths could differ: in a saturated layer they are nearly equal whatever the inputs are."""
        return self.saturated is not None and self.saturated < MOSTLY

    @property
    def dense(self) -> bool:
        return self.index.mean < SPARSE and self.output.mean - self.index.mean > LIKE_SPARSITY

    @property
    def stays(self) -> bool:
        """Whether accuracy is at most two binomial standard errors of the test images below that without the layer."""
        share = self.without.mean
        return self.accuracy.mean >= share - SIGNIFICANT_SES * math.sqrt(
            2 * share * (1 - share) / self.study.dataset.test
        )

    @property
    def notes(self) -> list[str]:
        notes = [f"index {self.index.mean:.2f} of the middle layer, {self.output.mean:.2f} of the output"]
        if self.saturated is None or self.length_sd is None or self.inputs is None:
            notes.append("whether the middle layer is saturated was not measured: not counted as confirmed")
        else:
            notes.append(
                f"{100 * self.saturated:.0f} % of the middle capsules are saturated, the sd of their lengths is "
                f"{self.length_sd:.3f}, the index before the squash {self.inputs:.2f}"
                + ("" if self.tells else ": the squash makes lengths alike, not counted as confirmed")
            )
        notes.append(f"accuracy {100 * self.accuracy.mean:.1f} % ({100 * self.without.mean:.1f} % without that layer)")
        return notes


def _middles(results: Results) -> Iterator[_Middle]:
    """Networks with a middle layer and without routing that have all numbers, preferred ones first."""
    evaluated = networks(results, "evaluate")
    for study in unrouted_with_middle(studies(results)):
        index, output = (_index(study, FORWARD, layer) for layer in ("middle", "class"))
        compared = [*like(evaluated, study)[:1], *without_middle(evaluated, study)[:1]]
        found = [share for each in compared if (share := each.numbers.measured("test", "accuracy"))]
        if index is None or output is None or len(found) < 2:
            continue
        saturated, length_sd, inputs = (
            study.numbers.number("condition", FORWARD, "middle", measure, "mean")
            for measure in ("saturated", "length_sd", "hoyer_inputs")
        )
        yield _Middle(study, index, output, saturated, length_sd, inputs, found[0], found[1], compared)


def middle_stays_dense(results: Results) -> Finding | None:
    """Section 3.1: Hoyer's index of a middle layer minus that of the class capsules, after the forward pass.

    The claim holds if the middle layer is not sparse, is clearly less sparse than the output, and accuracy is at most
    two standard errors below that without the layer; and if most of the middle capsules are not saturated. On the
    preferred data, the first network whose middle layer is not saturated is judged, or the first of all; the notes tell
    of every network.
    """
    found = list(_middles(results))
    if not found:
        return None
    here = [each for each in found if each.study.dataset == found[0].study.dataset]
    judged = next((each for each in here if each.tells), here[0])
    others = [each for each in here if each is not judged]
    notes = [*judged.notes, *(f"{other.study.item}: {note}" for other in others for note in other.notes)]
    if judged.study.evenly_weighted:
        notes.insert(0, f"{judged.study.item}: votes are averaged, not summed")
    records = records_of(results, *(network for each in (judged, *others) for network in (each.study, *each.compared)))
    return Finding(
        judged.index.minus(judged.output),
        dataset_label(records),
        distinct(records),
        holds=judged.dense and judged.stays and judged.tells,
        remarks=shortcomings(judged.study),
        notes=notes,
    )


MEASURES: dict[str, Measure] = {
    "001.acc.r3": _accuracy(Condition(routed=True, reconstructed=True)),
    "001.acc.r0": _accuracy(Condition(routed=False, reconstructed=True)),
    "001.acc.r3norec": _accuracy(Condition(routed=True, reconstructed=False)),
    "001.acc.r0norec": _accuracy(Condition(routed=False, reconstructed=False)),
    "001.fig2": slower_to_the_same_loss,
    "001.fig1.sparse": sparse_without_routing,
    "001.fig1.l1": sparse_only_with_l1,
    "001.mid": middle_stays_dense,
}
"""The measure of each claim about CapsNet."""
