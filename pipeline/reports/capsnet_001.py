"""How the claims of document 001 about CapsNet are answered, and which runs stand for its four conditions.

A condition is whether votes are routed and whether the loss has a reconstruction (appendix A). Of several runs of one
condition those on the paper's data set come first, then those nearer to its settings, then the order of `params.yaml`;
the first that was executed answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from pipeline.params import CapsNetRun, Params
from pipeline.reports.findings import NOT_THE_PAPERS_DATA, Evidence, Finding, Measure
from pipeline.reports.results import Measured, Numbers, Record, dataset_label

PAPER_SOURCE, PAPER_DATASET = "mnist", "MNIST"
PAPER_ITERATIONS, PAPER_EPOCHS = 3, 13
PAPER_RECONSTRUCTION = "mean"
"""Scaling of the reconstruction in the code behind the document."""
PAPER_SIZES = {"channels": 256, "kernel": 9, "types": 32}
PAPER_TRAIN_IMAGES = 60_000
LIKE_LOSS = 1.5
"""Ratio of two final losses up to which they are nearly the same: the paper's figure has a logarithmic axis."""
LIKE_SPARSITY, SPARSE = 0.1, 0.5
"""Difference of two of Hoyer's indices up to which they are alike, and the least index of what is sparse."""
ALMOST_ALL = 0.95
"""Share of images that stands for all of them."""
LIKE_ACCURACY = 0.01


class Condition(NamedTuple):
    """One of the four conditions of appendix A."""

    routed: bool
    reconstructed: bool

    @property
    def words(self) -> str:
        """Such as "no routing, reconstruction"."""
        return f"{'routing' if self.routed else 'no routing'}, {'' if self.reconstructed else 'no '}reconstruction"


CONDITIONS = [Condition(routed, reconstructed) for reconstructed in (True, False) for routed in (True, False)]


def capsnets(params: Params) -> dict[str, CapsNetRun]:
    """Runs of CapsNet by name."""
    return {name: run for name, run in params.runs.items() if isinstance(run, CapsNetRun)}


def condition_of(run: CapsNetRun) -> Condition:
    return Condition(run.model.iterations > 0, run.model.reconstruction != "none")


def candidates(params: Params, condition: Condition, *, middle: bool = False) -> list[str]:
    """Runs of one condition, with a middle layer or without, the one to be preferred first."""
    found = {
        name: run
        for name, run in capsnets(params).items()
        if condition_of(run) == condition and bool(run.model.middle) == middle
    }

    def rank(name: str) -> tuple[bool, bool, int, bool]:
        run = found[name]
        others = [getattr(run.model, key) != size for key, size in PAPER_SIZES.items()]
        iterations = condition.routed and run.model.iterations != PAPER_ITERATIONS
        scaling = run.model.reconstruction not in ("none", PAPER_RECONSTRUCTION)
        return params.datasets[run.dataset].source != PAPER_SOURCE, iterations, sum(others), scaling

    return sorted(found, key=rank)


def shortcomings(params: Params, name: str) -> list[str]:
    """In what the setting of a run falls short of the paper's."""
    run = capsnets(params)[name]
    dataset = params.datasets[run.dataset]
    remarks = []
    if dataset.source != PAPER_SOURCE:
        remarks.append(f"{NOT_THE_PAPERS_DATA} ({PAPER_DATASET})")
    elif dataset.train < PAPER_TRAIN_IMAGES:
        remarks.append(f"trained on {dataset.train:,} images (paper: {PAPER_TRAIN_IMAGES:,})")
    sizes = {key: (getattr(run.model, key), size) for key, size in PAPER_SIZES.items()}
    remarks += [f"{key} {ours} (paper: {theirs})" for key, (ours, theirs) in sizes.items() if ours != theirs]
    if run.training.epochs < PAPER_EPOCHS:
        remarks.append(f"{run.training.epochs} epochs (paper: {PAPER_EPOCHS})")
    return remarks


def _accuracy(condition: Condition) -> Measure:
    """Appendix A: test accuracy in percent, of the longest class capsule."""

    def measure(evidence: Evidence) -> Finding | None:
        for name in candidates(evidence.params, condition):
            numbers = evidence.results.numbers("evaluate", name)
            accuracy = numbers.measured("test", "accuracy") if numbers else None
            if numbers and accuracy:
                remarks = shortcomings(evidence.params, name)
                return Finding(accuracy.scaled(100), dataset_label(numbers.records), numbers.records, remarks=remarks)
        return None

    return measure


def losses(evidence: Evidence, name: str) -> tuple[pd.Series, list[Record]] | None:
    """Validation loss by epoch, mean over replicas, of a run that was executed."""
    table = evidence.results.table("train", name, ("replica", "epoch", "validation_loss"))
    numbers = evidence.results.numbers("train", name)
    if table is None or numbers is None:
        return None
    return table.groupby("epoch")["validation_loss"].mean(), numbers.records


def _first(evidence: Evidence, condition: Condition) -> tuple[str, pd.Series, list[Record]] | None:
    for name in candidates(evidence.params, condition):
        found = losses(evidence, name)
        if found:
            return (name, *found)
    return None


def slower_to_the_same_loss(evidence: Evidence) -> Finding | None:
    """Figure 2: without routing the loss is higher after the first epoch and nearly the same at its best; with and
    without reconstruction. Told is the ratio of the best losses of the first pair, without over with routing.
    """
    ratios, slower, records, remarks, notes = [], [], [], [], []
    for reconstructed in (True, False):
        pair = [_first(evidence, Condition(routed, reconstructed)) for routed in (True, False)]
        if any(each is None for each in pair):
            return None
        (with_name, with_, of_with), (_, without, of_without) = (each for each in pair if each)
        ratios.append(without.min() / with_.min())
        slower.append(without.iloc[0] > with_.iloc[0])
        records += [*of_with, *of_without]
        if reconstructed:
            remarks = ["loss of validation images", *shortcomings(evidence.params, with_name)]
        first, second = with_.iloc[0], without.iloc[0]
        notes.append(
            f"{'with' if reconstructed else 'without'} reconstruction {second:.3g} after the first epoch "
            f"(routed {first:.3g}), {without.min():.3g} at best ({with_.min():.3g})"
        )
    same = all(1 / LIKE_LOSS < ratio < LIKE_LOSS for ratio in ratios)
    return Finding(
        Measured(float(ratios[0]), 0.0, 1), dataset_label(records), records, holds=all(slower) and same,
        remarks=remarks, notes=notes,
    )  # fmt: skip


def inferred(evidence: Evidence, condition: Condition, *, middle: bool = False) -> Iterator[tuple[str, Numbers]]:
    """Executed studies of iterative inference in runs of a condition: the run's name, and what was measured."""
    for name in candidates(evidence.params, condition, middle=middle):
        for study, settings in evidence.params.infer.items():
            numbers = evidence.results.numbers("infer", study) if settings.run == name else None
            if numbers:
                yield name, numbers


def _index(numbers: Numbers, label: str, penalty: str, layer: str = "class") -> Measured | None:
    return numbers.measured("condition", label, penalty, layer, "hoyer")


def sparse_without_routing(evidence: Evidence) -> Finding | None:
    """Figure 1B-C: Hoyer's index of the class capsules' lengths after the forward pass, routed less unrouted."""
    for routed_name, routed in inferred(evidence, Condition(True, True)):
        for _, unrouted in inferred(evidence, Condition(False, True)):
            with_, without = (_index(numbers, "none", "forward") for numbers in (routed, unrouted))
            if with_ is None or without is None:
                continue
            records = [*routed.records, *unrouted.records]
            alike = abs(with_.mean - without.mean) <= LIKE_SPARSITY and min(with_.mean, without.mean) >= SPARSE
            return Finding(
                with_.minus(without), dataset_label(records), records, holds=alike,
                remarks=shortcomings(evidence.params, routed_name),
                notes=[f"index {with_.mean:.2f} routed, {without.mean:.2f} unrouted"],
            )  # fmt: skip
    return None


def sparse_only_with_l1(evidence: Evidence) -> Finding | None:
    """Figure 1D-E: Hoyer's index after inference with the label clamped, with L1 less without a penalty."""
    for name, numbers in inferred(evidence, Condition(False, True)):
        first, plain, before = (
            _index(numbers, *where) for where in (("clamped", "L1"), ("clamped", "none"), ("none", "forward"))
        )
        right = [
            numbers.number("condition", "clamped", penalty, "class", "right", "mean") for penalty in ("L1", "none")
        ]
        if first is None or plain is None or before is None or None in right:
            continue
        longest = min(share for share in right if share is not None)
        return Finding(
            first.minus(plain), dataset_label(numbers.records), numbers.records,
            holds=first.mean > plain.mean and longest >= ALMOST_ALL,
            remarks=shortcomings(evidence.params, name),
            notes=[f"index {first.mean:.2f} with L1, {plain.mean:.2f} without, {before.mean:.2f} before inference",
                   f"the right capsule is longest in {100 * longest:.0f} %"],
        )  # fmt: skip
    return None


def middle_stays_dense(evidence: Evidence) -> Finding | None:
    """Section 3.1: Hoyer's index of a middle layer less that of the class capsules, after the forward pass."""
    plain = next(
        (
            accuracy
            for name in candidates(evidence.params, Condition(False, True))
            if (found := evidence.results.numbers("evaluate", name))
            and (accuracy := found.measured("test", "accuracy"))
        ),
        None,
    )
    for name, numbers in inferred(evidence, Condition(False, True), middle=True):
        middle, output = (_index(numbers, "none", "forward", layer) for layer in ("middle", "class"))
        found = evidence.results.numbers("evaluate", name)
        accuracy = found.measured("test", "accuracy") if found else None
        if middle is None or output is None or accuracy is None or plain is None:
            continue
        stays = accuracy.mean >= plain.mean - LIKE_ACCURACY
        return Finding(
            middle.minus(output), dataset_label(numbers.records), numbers.records,
            holds=middle.mean < output.mean and stays,
            remarks=shortcomings(evidence.params, name),
            notes=[f"index {middle.mean:.2f} of the middle layer, {output.mean:.2f} of the output",
                   f"accuracy {100 * accuracy.mean:.1f} % (without that layer {100 * plain.mean:.1f})"],
        )  # fmt: skip
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
"""As `document_000.MEASURES`."""
