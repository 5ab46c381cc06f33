"""The checks of document 001's claims about CapsNet.

`runs` decides which results belong to which condition and in which order; the first that has all the numbers needed is
used.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from pipeline.results.findings import Finding, Measure
from pipeline.results.reading import Measured, Record, Results, dataset_label
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
    shortcomings,
    studies,
)

FIRST_EPOCHS, SLOWER = 3, 1.05
"""Learning "starts slower" if the loss is higher by at least this factor, as a geometric mean over the first epochs."""
LIKE_LOSS = 1.5
"""Two best losses are "nearly the same" up to this ratio (the paper's figure has a logarithmic axis)."""
LIKE_SPARSITY, SPARSE = 0.1, 0.5
"""Largest difference of two Hoyer indices that count as alike; smallest index that counts as sparse."""


def _accuracy(condition: Condition) -> Measure:
    """Appendix A: test accuracy (percent), with the longest class capsule as the answer."""

    def measure(results: Results) -> Finding | None:
        for network in candidates(networks(results, "evaluate"), condition):
            accuracy = network.numbers.measured("test", "accuracy")
            if accuracy:
                records = network.numbers.records
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
    records = _records(used)
    same = all(1 / LIKE_LOSS < ratio.mean < LIKE_LOSS for ratio in ratios)
    holds = same and all(ratio > SLOWER for ratio in slower)
    remarks = ["loss of shifted validation images (paper: test)", *shortcomings(*used)]
    return Finding(ratios[0], dataset_label(records), records, holds=holds, remarks=remarks, notes=notes)


def _records(used: list[Network]) -> list[Record]:
    return [record for network in used for record in network.numbers.records]


def _index(network: Network, condition: str, layer: str = "class") -> Measured | None:
    return network.numbers.measured("condition", condition, layer, "hoyer")


def sparse_without_routing(results: Results) -> Finding | None:
    """Figure 1B-C: Hoyer's index of the class capsules' lengths after the forward pass, with routing minus without."""
    for routed, unrouted in pairs(studies(results), reconstructed=True):
        with_, without = _index(routed, FORWARD), _index(unrouted, FORWARD)
        if with_ is None or without is None:
            continue
        records = _records([routed, unrouted])
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
        if finding := _sparser(study):
            return finding
    return None


def _sparser(study: Network) -> Finding | None:
    """The finding of one study, or None if it lacks a number."""
    numbers = study.numbers
    first, plain, before = (_index(study, condition) for condition in (SPARSER, PLAIN, START))
    right, falls = (
        [numbers.number("condition", condition, "class", measure, "mean") for condition in (SPARSER, PLAIN)]
        for measure in ("right", "falls")
    )
    shares = [share for share in (*right, *falls) if share is not None]
    if first is None or plain is None or before is None or len(shares) < len(right) + len(falls):
        return None
    notes = [
        f"index {first.mean:.2f} with L1, {plain.mean:.2f} without, {before.mean:.2f} before inference; "
        f"{numbers.number('images') or 0:.0f} images",
        f"the correct capsule is longest in {100 * min(shares[:2]):.0f} % of images",
    ]
    remarks = shortcomings(study)
    if study.inference and study.inference.rate != PAPER_RATE:
        remarks.append(f"inference at rate {study.inference.rate:g} (paper: {PAPER_RATE})")
    return Finding(
        first.minus(plain), dataset_label(numbers.records), numbers.records,
        holds=first.mean >= SPARSE > plain.mean and min(shares) >= ALMOST_ALL, remarks=remarks, notes=notes,
    )  # fmt: skip


def middle_stays_dense(results: Results) -> Finding | None:
    """Section 3.1: Hoyer's index of a middle layer minus that of the class capsules, after the forward pass.

    The claim holds if the middle layer is not sparse, is clearly less sparse than the output, and accuracy is at most
    two standard errors (binomial, of the test images) below that without the layer.
    """
    evaluated = networks(results, "evaluate")
    for study in candidates(studies(results), Condition(routed=False, reconstructed=True), middle=True):
        middle, output = (_index(study, FORWARD, layer) for layer in ("middle", "class"))
        compared = [*like(evaluated, study)[:1], *like(evaluated, study, middle=0)[:1]]
        found = [share for each in compared if (share := each.numbers.measured("test", "accuracy"))]
        if middle is None or output is None or len(found) < 2:
            continue
        accuracy, without = found
        error = math.sqrt(2 * without.mean * (1 - without.mean) / study.dataset.test)
        stays = accuracy.mean >= without.mean - 2 * error
        dense = middle.mean < SPARSE and output.mean - middle.mean > LIKE_SPARSITY
        records = _records([study, *compared])
        return Finding(
            middle.minus(output),
            dataset_label(records),
            records,
            holds=dense and stays,
            remarks=shortcomings(study),
            notes=[
                f"index {middle.mean:.2f} of the middle layer, {output.mean:.2f} of the output",
                f"accuracy {100 * accuracy.mean:.1f} % ({100 * without.mean:.1f} % without that layer)",
            ],
        )
    return None


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
