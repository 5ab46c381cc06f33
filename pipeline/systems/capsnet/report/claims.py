"""Measure the claims of document 001 about CapsNet: accuracy and loss with and without routing and reconstruction
(appendix A, Figure 2), and sparsity with and without routing and iterative inference (Figure 1B-E, section 3.1).

The profile's `evidence` names the items that answer the claims. Two results are compared only if the settings of their
networks are equal, except for the setting that the comparison is about.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipeline.drawing.style import BLUE, ORANGE, SKY, VERMILLION
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure, Remark, stalled
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import Record, unique
from pipeline.results.reading import UNNAMED, NotMeasuredError, Numbers, Recorded, Results, with_training

CONDITIONS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "routed": ({}, BLUE, "-", "routing, reconstruction"),
    "unrouted": ({"iterations": 0}, VERMILLION, "-", "no routing, reconstruction"),
    "routed_margin": ({"reconstruction": "none"}, SKY, "--", "routing, no reconstruction"),
    "unrouted_margin": ({"iterations": 0, "reconstruction": "none"}, ORANGE, "--", "no routing, no reconstruction"),
}
"""The conditions of appendix A, by their names in `evidence` and `documents.yaml`. Each entry has the model settings in
which the condition differs from `routed`, then a colour, a line style and a label for figures."""
FIRST_EPOCHS, SLOWER = 3, 1.05
"""Learning without routing "starts slower" if training loss without routing / training loss with routing exceeds
`SLOWER`. This ratio is the geometric mean over the first `FIRST_EPOCHS` epochs."""
LIKE_LOSS = 1.5
"""Losses are "nearly the same" if larger loss / smaller loss is below this. (The document's axis is logarithmic.)"""
FORWARD, START = "forward", "start"
PLAIN, SPARSER = "predicted-clamped-none", "predicted-clamped-L1-1"
CODED_PLAIN, CODED_SPARSER = "free-clamped-none-unrectified", "free-clamped-L1-0.5-unrectified"
"""Names of conditions in results. `FORWARD` is the forward pass on all test images, `START` the forward pass on the
images that inference uses. `PLAIN` is inference without a penalty (Figure 1D), `SPARSER` inference with L1 (Figure 1E).
`CODED_PLAIN` and `CODED_SPARSER` follow the document's code: class capsules are inferred, and layer 1 has no ReLU."""
LIKE_SPARSITY, SPARSE = 0.1, 0.5
"""Hoyer's indices are alike if they differ by at most `LIKE_SPARSITY`. From `SPARSE` on, capsules count as sparse."""
ALMOST_ALL, MOSTLY = 0.95, 0.5
"""A share of images counts as almost all if it is at least `ALMOST_ALL`. A layer counts as saturated if at least a
share `MOSTLY` of its capsules is saturated (longer than 0.9)."""


class Network(NamedTuple):
    """A result about a trained CapsNet.

    Attributes:
        item: name of the item that made the result.
        name: name of the run that trained the network.
        run, dataset: settings of this run and of its data set, as recorded in the result.
        inference: settings of iterative inference; empty if the result is of another stage than `infer`.
    """

    item: str
    numbers: Numbers
    name: str
    run: Recorded
    dataset: Recorded
    inference: Recorded

    def is_but_for(self, other: "Network", **changes: Any) -> bool:
        """Whether both have the same data and settings once `changes` are made to the model settings of `other`."""
        wanted = {**other.run, "model": {**other.run.model, **changes}}
        return self.run == wanted and self.dataset == other.dataset

    def shortcomings(self, document: str) -> list[Remark]:
        """Remarks on how this network differs from the document's network, called `document` in `documents.yaml`."""
        model = {"transformations": "normal", **self.run.model}  # the default, which records leave out
        return remarks("capsnet", document, {**self.run, "model": model, **self.inference}, self.dataset)

    def measured(self, condition: str, layer: str = "class", name: str = "hoyer") -> Measured:
        """The measure `name` of the capsules of one layer, in a condition such as `FORWARD` or `PLAIN`."""
        return self.numbers.needed("condition", condition, layer, name)


def network(results: Results, stage: str, item: str | None) -> Network:
    """The result of `item` in `stage`. Raises `NotMeasuredError` if there is no result, or if `item` is None."""
    item, numbers = results.answering(stage, item)
    inference = numbers.settings.infer[item] if stage == "infer" else Recorded({})
    name = inference.get("run", item)
    return Network(item, numbers, name, numbers.run(name), numbers.dataset_of(name), inference)


def records_of(results: Results, *found: Network) -> list[Record]:
    """The provenance records of several results: for each, the record of the network's training, then its own."""
    return [record for each in found for record in with_training(results, each.numbers, each.name)]


def _said(pair: Mapping[str, Network]) -> list[Remark]:
    """Remarks on how networks differ from the document's, whose names in `documents.yaml` are the keys of `pair`."""
    return unique(words for role, each in pair.items() for words in each.shortcomings(role))


# ---- networks without routing


def trained_conditions(results: Results) -> dict[str, tuple[Network, pd.DataFrame]]:
    """The training of each of `CONDITIONS`, and its table of losses, with a row for each epoch of each replica. Leaves
    out a condition if one of the two is missing, or if it differs from `routed` in settings that both should share.
    Raises `NotMeasuredError` if `routed` is missing.
    """
    names = results.evidence.capsnet.runs
    found: dict[str, tuple[Network, pd.DataFrame]] = {}
    first = network(results, "train", names.get("routed"))
    for role, (changes, *_) in CONDITIONS.items():
        with suppress(NotMeasuredError):
            run = network(results, "train", names.get(role))
            table = results.table("train", run.item, ("replica", "epoch", "train_loss", "validation_loss"))
            if table is not None and run.is_but_for(first, **changes):
                found[role] = run, table
    if "routed" not in found:
        raise NotMeasuredError("the table of the training with routing is missing")
    return found


def _accuracy(results: Results, role: str) -> Finding:
    """Appendix A: test accuracy (percent). The prediction is the class with the longest capsule."""
    found = network(results, "evaluate", results.evidence.capsnet.runs.get(role))
    accuracy = found.numbers.needed("test", "accuracy").scaled(100)
    history = results.table("train", found.name, ("replica", "epoch", "train_gradient_norm"))
    notes = [words] if history is not None and (words := stalled(history, found.run)) else []
    return Finding(accuracy, records_of(results, found), remarks=found.shortcomings(role), notes=notes)


def slower_to_the_same_loss(results: Results) -> Finding:
    """Figure 2: test loss without routing / test loss with routing, for the two networks with reconstruction. The claim
    holds if, without routing, the training loss is higher in the first epochs (see `SLOWER`), and the test loss is
    nearly the same (see `LIKE_LOSS`). Both must be true with and without reconstruction. The test loss is the margin
    loss alone. Raises `NotMeasuredError` if a condition is missing, or a network was tested with other settings.
    """
    trained = trained_conditions(results)
    tested = {role: network(results, "evaluate", run.item) for role, (run, _) in trained.items()}
    if len(trained) < len(CONDITIONS):
        missing = ", ".join(role for role in CONDITIONS if role not in trained)
        raise NotMeasuredError(f"no training, or none with equal settings: {missing}")
    if not all(run.is_but_for(tested[role]) for role, (run, _) in trained.items()):
        raise NotMeasuredError("a network was trained and tested with different settings")
    epochs = {role: table.groupby("epoch")["train_loss"].mean() for role, (_, table) in trained.items()}
    ratios, slower, notes = [], [], []
    for words, ending in (("with", ""), ("without", "_margin")):
        roles = f"unrouted{ending}", f"routed{ending}"
        without, with_ = (tested[role].numbers.needed("test", "margin_loss") for role in roles)
        ratios.append(without.over(with_))
        slower.append(float(np.exp(np.log(epochs[roles[0]] / epochs[roles[1]])[:FIRST_EPOCHS].mean())))
        notes.append(
            f"{words} reconstruction, loss without routing / with it: {slower[-1]:.2f} on training images in the first "
            f"{FIRST_EPOCHS} epochs, {ratios[-1].mean:.2f} on test images"
        )
    same = all(1 / LIKE_LOSS < ratio.mean < LIKE_LOSS for ratio in ratios)
    return Finding(
        ratios[0],
        records_of(results, *tested.values()),
        holds=same and all(ratio > SLOWER for ratio in slower),
        remarks=_said(tested),
        notes=notes,
    )


# ---- sparsity


def inferred_pair(results: Results) -> dict[str, Network]:
    """The results of inference with the roles `routed` and `unrouted` in `evidence`, under these keys. Raises
    `NotMeasuredError` if a result is missing, or if the networks differ in more than routing.
    """
    names = results.evidence.capsnet.inference
    routed, unrouted = (network(results, "infer", names.get(role)) for role in ("routed", "unrouted"))
    if not unrouted.is_but_for(routed, iterations=0):
        raise NotMeasuredError("the networks differ in more than routing")
    return {"routed": routed, "unrouted": unrouted}


def sparse_without_routing(results: Results) -> Finding:
    """Figure 1B-C: after the forward pass, Hoyer's index of class capsules with routing minus the index without it.
    The claim holds if both indices are at least `SPARSE` and differ by at most `LIKE_SPARSITY`.
    """
    pair = inferred_pair(results)
    with_, without = (each.measured(FORWARD) for each in pair.values())
    return Finding(
        with_.minus(without),
        records_of(results, *pair.values()),
        holds=abs(with_.mean - without.mean) <= LIKE_SPARSITY and min(with_.mean, without.mean) >= SPARSE,
        remarks=_said(pair),
        notes=[f"index {with_.mean:.2f} with routing, {without.mean:.2f} without"],
    )


def sparse_only_with_l1(results: Results, *, as_coded: bool = False) -> Finding:
    """Figure 1D-E: Hoyer's index after inference with an L1 penalty minus the index after inference without a penalty.

    Inference is given the labels. The claim holds if three statements are true. (1) With L1, the index is at least
    `SPARSE`. (2) Without a penalty, inference raises the index by at most two standard errors and at most
    `LIKE_SPARSITY`. If `as_coded` (as in the document's code), this index is below `SPARSE` instead. (3) With and
    without L1, the correct capsule is longest, and the energy never rises, each in almost all images (`ALMOST_ALL`).
    """
    sparser_name, plain_name = (CODED_SPARSER, CODED_PLAIN) if as_coded else (SPARSER, PLAIN)
    role = "as_coded" if as_coded else "unrouted"
    found = network(results, "infer", results.evidence.capsnet.inference.get(role))
    conditions = (sparser_name, plain_name, START)
    sparser, plain, before = (found.measured(condition) for condition in conditions)
    errors = [found.measured(condition, name="hoyer_standard_error").mean for condition in conditions]
    right, falls = (
        min(found.measured(condition, name=name).mean for condition in conditions[:2]) for name in ("right", "falls")
    )
    rises = plain.mean - before.mean > min(SIGNIFICANT_SES * math.hypot(*errors[1:]), LIKE_SPARSITY)
    dense = plain.mean < SPARSE if as_coded else not rises
    said = [] if as_coded else [Remark("weight of L1 1 / 0.5 (ours / the published code's)")]
    return Finding(
        sparser.minus(plain),
        records_of(results, found),
        holds=sparser.mean >= SPARSE and dense and min(right, falls) >= ALMOST_ALL,
        remarks=found.shortcomings("inference") + said,
        notes=[
            f"index {sparser.mean:.3f} ± {errors[0]:.3f} with L1, {plain.mean:.3f} ± {errors[1]:.3f} without, "
            f"{before.mean:.3f} ± {errors[2]:.3f} before inference{', with the ReLU' * as_coded} "
            f"(standard errors over {found.numbers.number('images'):.0f} images)",
            f"the correct capsule is longest in {100 * right:.0f} % of images, and the energy never rises in "
            f"{100 * falls:.0f} %, each in the worse of the two conditions (with and without L1)",
        ],
    )


def middle_stays_dense(results: Results) -> Finding:
    """Section 3.1: Hoyer's index of a middle layer minus the index of the class capsules, after the forward pass.

    The claim holds if four statements are true. The middle layer is not sparse (see `SPARSE`). Its index is lower than
    that of the class capsules by more than `LIKE_SPARSITY`. It is not saturated (see `MOSTLY`). It lowers the accuracy
    by at most two binomial standard errors of the difference. The first network in `evidence` that was measured answers
    the claim. Notes are about all measured networks. Raises `NotMeasuredError` if none was.
    """
    found, missing = [], []
    for names in results.evidence.capsnet.middle:
        try:
            found.append(_middle(results, names.inference, names.without))
        except NotMeasuredError as error:
            missing.append(str(error))
    if not found:
        raise NotMeasuredError("; ".join(missing) or UNNAMED)
    (study, judged), *others = found
    notes = [*judged.notes, *(f"{other.item}: {note}" for other, finding in others for note in finding.notes)]
    if study.run.model.iterations == 1 and study.run.model.counting == "sums":  # the shares stay equal
        told = "gives equal shares to the n capsules above, so sums of votes are n times smaller than without routing"
        notes.insert(0, f"{study.item}: each capsule {told}")
    records = [record for _, finding in found for record in finding.records]
    return replace(judged, records=records, notes=notes)


def _middle(results: Results, inference: str, without: str) -> tuple[Network, Finding]:
    """The result of the item `inference`, whose network has a middle layer, and the finding. `without` is a run without
    this layer. Raises `NotMeasuredError` if a number is missing, or if the networks differ in more than this layer.
    """
    inferred, other = network(results, "infer", inference), network(results, "evaluate", without)
    own = network(results, "evaluate", inferred.name)
    if not (own.is_but_for(inferred) and other.is_but_for(inferred, middle=0)):
        raise NotMeasuredError("the networks differ in more than the middle layer")
    index, output = (inferred.measured(FORWARD, layer) for layer in ("middle", "class"))
    accuracy, before = (each.numbers.needed("test", "accuracy").mean for each in (own, other))
    saturated, length_sd, inputs = (
        inferred.measured(FORWARD, "middle", name).mean for name in ("saturated", "length_sd", "hoyer_inputs")
    )
    tells = saturated < MOSTLY  # in a saturated layer, lengths are nearly equal even for unequal inputs
    dense = index.mean < SPARSE and output.mean - index.mean > LIKE_SPARSITY
    error = math.sqrt(2 * before * (1 - before) / inferred.dataset.test)
    notes = [
        f"index {index.mean:.2f} of the middle layer, {output.mean:.2f} of the output",
        f"{100 * saturated:.0f} % of the middle capsules are saturated, the sd of their lengths is "
        f"{length_sd:.3f}, the index before the squash {inputs:.2f}"
        + ("" if tells else ": the squash alone makes lengths alike, which confirms nothing"),
        f"accuracy {100 * accuracy:.1f} % ({100 * before:.1f} % without that layer)",
    ]
    holds = dense and tells and accuracy >= before - SIGNIFICANT_SES * error
    records, said = records_of(results, inferred, own, other), inferred.shortcomings("middle")
    return inferred, Finding(index.minus(output), records, holds=holds, remarks=said, notes=notes)


MEASURES: dict[str, Measure] = {
    "001.acc.r3": partial(_accuracy, role="routed"),
    "001.acc.r0": partial(_accuracy, role="unrouted"),
    "001.acc.r3norec": partial(_accuracy, role="routed_margin"),
    "001.acc.r0norec": partial(_accuracy, role="unrouted_margin"),
    "001.fig2": slower_to_the_same_loss,
    "001.fig1.sparse": sparse_without_routing,
    "001.fig1.l1": sparse_only_with_l1,
    "001.fig1.l1.code": partial(sparse_only_with_l1, as_coded=True),
    "001.mid": middle_stays_dense,
}
