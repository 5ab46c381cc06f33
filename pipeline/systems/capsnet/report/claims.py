"""The checks of document 001's claims about CapsNet, on the items that the profile's `evidence` names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import Results
from pipeline.systems.capsnet.report.runs import (
    ALMOST_ALL,
    CONDITIONS,
    FORWARD,
    PLAIN,
    SPARSER,
    START,
    Condition,
    Network,
    inferred_pair,
    network,
    records_of,
    shortcomings,
    study,
    trained_conditions,
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
        found = network(results, "evaluate", results.evidence.capsnet.runs.get(condition.role))
        accuracy = found.numbers.measured("test", "accuracy") if found else None
        if found is None or accuracy is None:
            return None
        records = records_of(results, found)
        said = shortcomings(found, condition.role)
        return Finding(accuracy.scaled(100), dataset_label(records), records, remarks=said)

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
    trained = trained_conditions(results)
    found = {each: losses for each, run in trained.items() if (losses := _losses(results, run)) is not None}
    if len(found) < len(CONDITIONS):
        return None
    ratios: list[Measured] = []
    slower: list[float] = []
    notes: list[str] = []
    for reconstructed in (True, False):
        with_, without = (found[Condition(routed, reconstructed)] for routed in (True, False))
        best = without.min() / with_.min()
        ratios.append(Measured.of(best))
        first = min(len(with_), len(without), FIRST_EPOCHS)
        early = np.log(without.to_numpy()[:first] / with_.to_numpy()[:first])
        slower.append(float(np.exp(early.mean())))
        notes.append(
            f"{'with' if reconstructed else 'without'} reconstruction, loss without routing / with it: "
            f"{slower[-1]:.2f} in the first {FIRST_EPOCHS} epochs, {ratios[-1].mean:.2f} at best"
        )
    records = records_of(results, *trained.values())
    same = all(1 / LIKE_LOSS < ratio.mean < LIKE_LOSS for ratio in ratios)
    holds = same and all(ratio > SLOWER for ratio in slower)
    said = unique(words for each, run in trained.items() for words in shortcomings(run, each.role))
    remarks = ["loss of shifted validation images (paper: test)", *said]
    return Finding(ratios[0], dataset_label(records), records, holds=holds, remarks=remarks, notes=notes)


def _index(network: Network, condition: str, layer: str = "class") -> Measured | None:
    return network.numbers.measured("condition", condition, layer, "hoyer")


def sparse_without_routing(results: Results) -> Finding | None:
    """Figure 1B-C: Hoyer's index of the class capsules' lengths after the forward pass, with routing minus without."""
    pair = inferred_pair(results)
    found = [index for each in pair or () if (index := _index(each, FORWARD))]
    if pair is None or len(found) < len(pair):
        return None
    with_, without = found
    records = records_of(results, *pair)
    return Finding(
        with_.minus(without),
        dataset_label(records),
        records,
        holds=abs(with_.mean - without.mean) <= LIKE_SPARSITY and min(with_.mean, without.mean) >= SPARSE,
        remarks=unique(
            words for each, name in zip(pair, ("routed", "unrouted"), strict=True) for words in shortcomings(each, name)
        ),
        notes=[f"index {with_.mean:.2f} with routing, {without.mean:.2f} without"],
    )


def sparse_only_with_l1(results: Results) -> Finding | None:
    """Figure 1D-E: Hoyer's index after inference with the label clamped, with L1 minus without a penalty.

    The claim holds if inference is sparse with L1 and not without, and in both cases the correct capsule is longest in
    almost all images and the energy never rises in almost all of them.
    """
    found = study(results, results.evidence.capsnet.inference.get("unrouted"))
    first, plain = (_index(found, condition) if found else None for condition in (SPARSER, PLAIN))
    if found is None or first is None or plain is None:
        return None
    right, falls = (
        min(found.measure(condition, "class", measure) for condition in (SPARSER, PLAIN))
        for measure in ("right", "falls")
    )
    with_l1, without, start = (_with_error(found, condition) for condition in (SPARSER, PLAIN, START))
    notes = [
        f"index {with_l1} with L1, {without} without, {start} before inference "
        f"(standard errors over {found.numbers.number('images'):.0f} images)",
        f"the correct capsule is longest in {100 * right:.0f} % of images, and the energy never rises in "
        f"{100 * falls:.0f} %, by the worse of both conditions",
    ]
    return Finding(
        first.minus(plain),
        dataset_label(found.numbers.records),
        records_of(results, found),
        holds=first.mean >= SPARSE > plain.mean and min(right, falls) >= ALMOST_ALL,
        remarks=shortcomings(found, "inference"),
        notes=notes,
    )


def _with_error(study: Network, condition: str) -> str:
    """The mean index of the class capsules with its standard error over images, such as "0.874 ± 0.003"."""
    index, error = (study.measure(condition, "class", name) for name in ("hoyer", "hoyer_standard_error"))
    return "unknown" if math.isnan(index) else f"{index:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


class _Middle(NamedTuple):
    """What was found of a network with a middle layer.

    Attributes:
        study: inference in it.
        compared: the evaluations of the network, and of the one without that layer.
        denser: Hoyer's index of the layer minus that of the class capsules, after the forward pass.
    """

    study: Network
    compared: list[Network]
    denser: Measured
    holds: bool
    notes: list[str]


def _middles(results: Results) -> Iterator[_Middle]:
    """Networks with a middle layer that have all numbers, in the order of the evidence."""
    for names in results.evidence.capsnet.middle:
        inferred, other = study(results, names.inference), network(results, "evaluate", names.without)
        own = network(results, "evaluate", inferred.name) if inferred else None
        if not (inferred and own and other and own.is_but_for(inferred) and other.is_but_for(inferred, middle=0)):
            continue
        index, output = (_index(inferred, FORWARD, layer) for layer in ("middle", "class"))
        accuracy, without = (each.numbers.number("test", "accuracy", "mean") for each in (own, other))
        if index is None or output is None or accuracy is None or without is None:
            continue
        saturated, length_sd, inputs = (
            inferred.measure(FORWARD, "middle", measure) for measure in ("saturated", "length_sd", "hoyer_inputs")
        )
        tells = saturated < MOSTLY  # in a saturated layer lengths are nearly equal whatever the inputs are
        dense = index.mean < SPARSE and output.mean - index.mean > LIKE_SPARSITY
        error = math.sqrt(2 * without * (1 - without) / inferred.dataset.test)
        notes = [
            f"index {index.mean:.2f} of the middle layer, {output.mean:.2f} of the output",
            f"{100 * saturated:.0f} % of the middle capsules are saturated, the sd of their lengths is "
            f"{length_sd:.3f}, the index before the squash {inputs:.2f}"
            + ("" if tells else ": the squash makes lengths alike, not counted as confirmed"),
            f"accuracy {100 * accuracy:.1f} % ({100 * without:.1f} % without that layer)",
        ]
        if math.isnan(saturated):
            notes[1] = "whether the middle layer is saturated was not measured: not counted as confirmed"
        holds = dense and tells and accuracy >= without - SIGNIFICANT_SES * error
        yield _Middle(inferred, [own, other], index.minus(output), holds, notes)


def middle_stays_dense(results: Results) -> Finding | None:
    """Section 3.1: Hoyer's index of a middle layer minus that of the class capsules, after the forward pass.

    The claim holds if the middle layer is not sparse, is clearly less sparse than the output, and accuracy is at most
    two binomial standard errors below that without the layer; and if most of the middle capsules are not saturated. The
    first network that evidence names is judged; the notes tell of every network.
    """
    found = list(_middles(results))
    if not found:
        return None
    judged, *others = found
    notes = [*judged.notes, *(f"{other.study.item}: {note}" for other in others for note in other.notes)]
    if judged.study.evenly_weighted:
        notes.insert(0, f"{judged.study.item}: votes are averaged, not summed")
    records = records_of(results, *(run for each in found for run in (each.study, *each.compared)))
    said = shortcomings(judged.study, "unrouted")
    return Finding(judged.denser, dataset_label(records), records, holds=judged.holds, remarks=said, notes=notes)


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
