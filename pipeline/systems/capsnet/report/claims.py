"""How the claims of document 001 about CapsNet are answered, and which runs stand for its four conditions.

A condition is whether votes are routed, with the paper's three iterations, and whether the loss has a reconstruction
(appendix A). Of several runs of one condition those on the paper's data set come first, then those nearer to its
settings, then the order of `params.yaml`; the first that was executed answers. Runs are compared only with one that
differs in nothing but what the comparison is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.params import Params
from pipeline.results.findings import NOT_THE_PAPERS_DATA, Evidence, Finding, Measure
from pipeline.results.reading import Measured, Numbers, Record, dataset_label
from pipeline.systems.capsnet.settings import CapsNetRun
from pipeline.systems.capsnet.studies.settings import InferParams

PAPER_SOURCE, PAPER_DATASET = "mnist", "MNIST"
PAPER_ITERATIONS, PAPER_EPOCHS = 3, 13
PAPER_MODEL = {
    "channels": 256, "kernel": 9, "strides": [1, 2], "types": 32, "primary_size": 8, "class_size": 16,
    "counting": "updates", "decoder": [512, 1024],
}  # fmt: skip
PAPER_RECONSTRUCTION = "mean"
"""Scaling of the reconstruction in the code behind the document."""
PAPER_BATCH, PAPER_SHIFT = 128, 2
PAPER_RATE = 0.01
PAPER_TRAIN_IMAGES = 60_000
FORWARD, START = "forward", "start"
PLAIN, SPARSER = "predicted-clamped-none", "predicted-clamped-L1-1"
"""Names in results: the forward pass of all test images, that of those inferred, and what Figures 1D and E show."""
FIRST_EPOCHS, SLOWER = 3, 1.05
"""Learning starts slower where the loss is higher by that factor, in the geometric mean over so many epochs."""
LIKE_LOSS = 1.5
"""Ratio of two final losses up to which they are nearly the same: the paper's figure has a logarithmic axis."""
LIKE_SPARSITY, SPARSE = 0.1, 0.5
"""Difference of two of Hoyer's indices up to which they are alike, and the least index of what is sparse."""
ALMOST_ALL = 0.95
"""Share of images that stands for all of them."""


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


def condition_of(run: CapsNetRun) -> Condition | None:
    """None for a run that stands for none of the four, with another number of iterations."""
    if run.model.iterations not in (0, PAPER_ITERATIONS):
        return None
    return Condition(run.model.iterations > 0, run.model.reconstruction != "none")


def _differences(run: CapsNetRun) -> list[tuple[str, Any, Any]]:
    """In what a run's network and training are other than the paper's: name, ours, the paper's."""
    settings = [(name.replace("_", " "), getattr(run.model, name), theirs) for name, theirs in PAPER_MODEL.items()]
    if run.model.reconstruction != "none":
        settings.append(("reconstruction", run.model.reconstruction, PAPER_RECONSTRUCTION))
    settings += [
        ("images a batch", run.training.batch_size, PAPER_BATCH),
        ("pixels of shift", run.augmentation.shift, PAPER_SHIFT),
        ("epochs", min(run.training.epochs, PAPER_EPOCHS), PAPER_EPOCHS),
    ]
    return [(name, ours, theirs) for name, ours, theirs in settings if ours != theirs]


def candidates(params: Params, condition: Condition, *, middle: bool = False) -> list[str]:
    """Runs of one condition, with a middle layer or without, the one to be preferred first."""
    found = {
        name: run
        for name, run in capsnets(params).items()
        if condition_of(run) == condition and bool(run.model.middle) == middle
    }

    def rank(name: str) -> tuple[bool, int]:
        elsewhere = params.datasets[found[name].dataset].source != PAPER_SOURCE
        return elsewhere, len(_differences(found[name]))

    return sorted(found, key=rank)


def partner(params: Params, name: str, **changes: Any) -> str | None:
    """The run that differs from another in nothing but these fields of its model; None where there is none."""
    run = capsnets(params)[name]
    wanted = run.model_copy(update={"model": run.model.model_copy(update=changes)})
    return next((other for other, each in capsnets(params).items() if each == wanted), None)


def family(params: Params, name: str) -> dict[Condition, str]:
    """Of a run with routing and reconstruction all four conditions, as far as there are runs of them."""
    changes: dict[Condition, dict[str, Any]] = {
        condition: ({} if condition.routed else {"iterations": 0})
        | ({} if condition.reconstructed else {"reconstruction": "none"})
        for condition in CONDITIONS
    }
    found = {condition: partner(params, name, **each) for condition, each in changes.items()}
    return {condition: each for condition, each in found.items() if each is not None}


def pairs(params: Params, *, reconstructed: bool) -> Iterator[tuple[str, str]]:
    """A run with routing and the same without, those to be preferred first."""
    for routed in candidates(params, Condition(routed=True, reconstructed=reconstructed)):
        unrouted = partner(params, routed, iterations=0)
        if unrouted:
            yield routed, unrouted


def shortcomings(params: Params, name: str) -> list[str]:
    """In what the setting of a run falls short of the paper's."""
    run = capsnets(params)[name]
    dataset = params.datasets[run.dataset]
    remarks = []
    if dataset.source != PAPER_SOURCE:
        remarks.append(f"{NOT_THE_PAPERS_DATA} ({PAPER_DATASET})")
    elif dataset.train < PAPER_TRAIN_IMAGES:
        remarks.append(f"trained on {dataset.train:,} images (paper: {PAPER_TRAIN_IMAGES:,})")
    if differences := _differences(run):
        listed = ", ".join(f"{name} {ours} / {theirs}" for name, ours, theirs in differences)
        remarks.append(f"{listed} (ours / the paper's)")
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


def _losses(evidence: Evidence, name: str) -> tuple[pd.DataFrame, list[Record]] | None:
    """Validation losses `[epochs, replicas]` of a run that was executed."""
    table = evidence.results.table("train", name, ("replica", "epoch", "validation_loss"))
    numbers = evidence.results.numbers("train", name)
    if table is None or numbers is None:
        return None
    wide = table.pivot_table(index="epoch", columns="replica", values="validation_loss")
    return wide, numbers.records


def slower_to_the_same_loss(evidence: Evidence) -> Finding | None:
    """Figure 2: without routing the loss is higher in the first epochs and nearly the same at its best; with and
    without reconstruction. Told is the ratio of the best losses of the pair with reconstruction, without routing over
    with it, over replicas.
    """
    ratios: list[Measured] = []
    slower: list[float] = []
    records: list[Record] = []
    remarks: list[str] = []
    notes: list[str] = []
    for reconstructed in (True, False):
        for routed, unrouted in pairs(evidence.params, reconstructed=reconstructed):
            found = [_losses(evidence, name) for name in (routed, unrouted)]
            if any(each is None for each in found):
                continue
            (with_, of_with), (without, of_without) = (each for each in found if each)
            best = without.min() / with_.min()
            ratios.append(Measured(float(best.mean()), float(best.std()) if len(best) > 1 else 0.0, len(best)))
            first = min(len(with_), len(without), FIRST_EPOCHS)
            early = np.log(without.to_numpy()[:first] / with_.to_numpy()[:first])
            slower.append(float(np.exp(early.mean())))
            records += [*of_with, *of_without]
            remarks = remarks or shortcomings(evidence.params, routed)
            notes.append(
                f"{'with' if reconstructed else 'without'} reconstruction, no routing over routing: "
                f"{slower[-1]:.2f} in the first {FIRST_EPOCHS} epochs, {ratios[-1].mean:.2f} at best"
            )
            break
        else:
            return None
    same = all(1 / LIKE_LOSS < ratio.mean < LIKE_LOSS for ratio in ratios)
    holds = same and all(ratio > SLOWER for ratio in slower)
    remarks = ["loss of shifted validation images (paper: test)", *remarks]
    return Finding(ratios[0], dataset_label(records), records, holds=holds, remarks=remarks, notes=notes)


def studies(evidence: Evidence, name: str) -> Iterator[tuple[str, InferParams, Numbers]]:
    """Name, settings and numbers of the executed studies of iterative inference in a run, in the parameters' order."""
    for study, settings in evidence.params.infer.items():
        numbers = evidence.results.numbers("infer", study) if settings.run == name else None
        if numbers:
            yield study, settings, numbers


def _inferred(evidence: Evidence, name: str) -> Numbers | None:
    """The numbers of the first of them."""
    return next((numbers for *_, numbers in studies(evidence, name)), None)


def _index(numbers: Numbers, condition: str, layer: str = "class") -> Measured | None:
    return numbers.measured("condition", condition, layer, "hoyer")


def sparse_without_routing(evidence: Evidence) -> Finding | None:
    """Figure 1B-C: Hoyer's index of the class capsules' lengths after the forward pass, routed less unrouted."""
    for routed, unrouted in pairs(evidence.params, reconstructed=True):
        numbers = [each for name in (routed, unrouted) if (each := _inferred(evidence, name))]
        found = [index for each in numbers if (index := _index(each, FORWARD))]
        if len(found) < 2:
            continue
        with_, without = found
        records = [record for each in numbers for record in each.records]
        alike = abs(with_.mean - without.mean) <= LIKE_SPARSITY and min(with_.mean, without.mean) >= SPARSE
        remarks = shortcomings(evidence.params, routed)
        notes = [f"index {with_.mean:.2f} routed, {without.mean:.2f} unrouted"]
        return Finding(with_.minus(without), dataset_label(records), records, holds=alike, remarks=remarks, notes=notes)
    return None


def sparse_only_with_l1(evidence: Evidence) -> Finding | None:
    """Figure 1D-E: Hoyer's index after inference with the label clamped, with L1 less without a penalty.

    It holds where inference is sparse with L1 and not without, and the right capsule is longest in almost all images
    with both. Of several studies of a run the first answers whose energies fall, if there is one: where they rise, at
    too high a rate, inference ends nowhere.
    """
    for name in candidates(evidence.params, Condition(routed=False, reconstructed=True)):
        for _, settings, numbers in sorted(studies(evidence, name), key=lambda study: rises(study[-1])):
            if finding := _sparser(evidence, name, settings, numbers):
                return finding
    return None


def rises(numbers: Numbers) -> bool:
    """Whether the energies of a study, with L1 or without a penalty, rose in more than a few images."""
    falls = (numbers.number("condition", each, "class", "falls", "mean") for each in (SPARSER, PLAIN))
    return any(share is not None and share < ALMOST_ALL for share in falls)


def _sparser(evidence: Evidence, name: str, settings: InferParams, numbers: Numbers) -> Finding | None:
    """What one study says, where it has all that is asked for."""
    first, plain, before = (_index(numbers, condition) for condition in (SPARSER, PLAIN, START))
    right, falls = (
        [numbers.number("condition", condition, "class", measure, "mean") for condition in (SPARSER, PLAIN)]
        for measure in ("right", "falls")
    )
    told = [share for share in (*right, *falls) if share is not None]
    if first is None or plain is None or before is None or len(told) < len(right) + len(falls):
        return None
    notes = [
        f"index {first.mean:.2f} with L1, {plain.mean:.2f} without, {before.mean:.2f} before inference; "
        f"{numbers.number('images') or 0:.0f} images",
        f"the right capsule is longest in {100 * min(told[:2]):.0f} %",
    ]
    remarks = shortcomings(evidence.params, name)
    if settings.rate != PAPER_RATE:
        remarks.append(f"inference at rate {settings.rate:g} (paper: {PAPER_RATE})")
    return Finding(
        first.minus(plain), dataset_label(numbers.records), numbers.records,
        holds=first.mean >= SPARSE > plain.mean and min(told) >= ALMOST_ALL, remarks=remarks, notes=notes,
    )  # fmt: skip


def middle_stays_dense(evidence: Evidence) -> Finding | None:
    """Section 3.1: Hoyer's index of a middle layer less that of the class capsules, after the forward pass.

    It holds where the middle layer is not sparse, clearly less so than the output, and accuracy is within two standard
    errors (binomial, of the test images) of that without the layer.
    """
    for name in candidates(evidence.params, Condition(routed=False, reconstructed=True), middle=True):
        plain = partner(evidence.params, name, middle=0)
        numbers = _inferred(evidence, name)
        if plain is None or numbers is None:
            continue
        middle, output = (_index(numbers, FORWARD, layer) for layer in ("middle", "class"))
        evaluated = [evidence.results.numbers("evaluate", run) for run in (name, plain)]
        found = [share for each in evaluated if each and (share := each.measured("test", "accuracy"))]
        if middle is None or output is None or len(found) < 2:
            continue
        accuracy, without = found
        images = evidence.params.datasets[capsnets(evidence.params)[name].dataset].test
        error = math.sqrt(2 * without.mean * (1 - without.mean) / images)
        stays = accuracy.mean >= without.mean - 2 * error
        notes = [
            f"index {middle.mean:.2f} of the middle layer, {output.mean:.2f} of the output",
            f"accuracy {100 * accuracy.mean:.1f} % (without that layer {100 * without.mean:.1f})",
        ]
        dense = middle.mean < SPARSE and output.mean - middle.mean > LIKE_SPARSITY
        return Finding(
            middle.minus(output), dataset_label(numbers.records), numbers.records, holds=dense and stays,
            remarks=shortcomings(evidence.params, name), notes=notes,
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
