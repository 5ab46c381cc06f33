"""Networks with and without routing, with and without reconstruction (document 001, appendix A and Figure 2).

Claims are answered by the items that the profile's `evidence` names. Two results are compared only if their networks
differ in nothing but what the comparison is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import BLUE, ORANGE, SKY, VERMILLION, in_house_style, panels
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure, Remark, stalled
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, distinct, unique
from pipeline.results.reading import NotMeasuredError, Numbers, Recorded, Results, with_training

CONDITIONS: dict[str, dict[str, Any]] = {
    "routed": {},
    "unrouted": {"iterations": 0},
    "routed_margin": {"reconstruction": "none"},
    "unrouted_margin": {"iterations": 0, "reconstruction": "none"},
}
"""The conditions of appendix A, as evidence and `documents.yaml` call them, and what they change in the first's model:
whether votes are routed, and whether the loss has a reconstruction term.
"""
FIRST_EPOCHS, SLOWER = 3, 1.05
"""Learning "starts slower" if the loss is higher by at least this factor, as a geometric mean over the first epochs."""
LIKE_LOSS = 1.5
"""Two best losses are "nearly the same" up to this ratio (the paper's figure has a logarithmic axis)."""
_LOOKS = {
    "routed": (BLUE, "-", "routing, reconstruction"),
    "unrouted": (VERMILLION, "-", "no routing, reconstruction"),
    "routed_margin": (SKY, "--", "routing, no reconstruction"),
    "unrouted_margin": (ORANGE, "--", "no routing, no reconstruction"),
}


class Network(NamedTuple):
    """A result about a trained CapsNet.

    Attributes:
        item: the item of the stage that made it.
        name: of the run that it is about.
        run, dataset: the settings of the network and of its data, as recorded in the result.
        inference: the settings of iterative inference; empty for results of other stages.
    """

    item: str
    numbers: Numbers
    name: str
    run: Recorded
    dataset: Recorded
    inference: Recorded

    def is_but_for(self, other: Network, **changes: Any) -> bool:
        """Whether it is another's network with `changes` of the model, on the same data."""
        wanted = {**other.run, "model": {**other.run.model, **changes}}
        return self.run == wanted and self.dataset == other.dataset

    def shortcomings(self, document: str) -> list[Remark]:
        """In what it falls short of the paper's, which `documents.yaml` calls `document`."""
        return remarks("capsnet", document, {**self.run, **self.inference}, self.dataset)


def network(results: Results, stage: str, item: str | None) -> Network:
    """The result of a stage. Raises `NotMeasuredError` if there is none."""
    item, numbers = results.answering(stage, item)
    inference = numbers.settings.infer[item] if stage == "infer" else Recorded({})
    name = inference.get("run", item)
    return Network(item, numbers, name, numbers.run(name), numbers.dataset_of(name), inference)


def records_of(results: Results, *found: Network) -> list[Record]:
    """The provenance of results, each after that of its network's training."""
    return distinct(record for each in found for record in with_training(results, each.numbers, each.name))


def trained_conditions(results: Results) -> dict[str, tuple[Network, pd.DataFrame]]:
    """The trainings that evidence names for the conditions and that differ in the condition alone, with their losses:
    columns replica, epoch, train_loss, validation_loss. Raises `NotMeasuredError` without the first.
    """
    names = results.evidence.capsnet.runs
    found: dict[str, tuple[Network, pd.DataFrame]] = {}
    first = network(results, "train", names.get("routed"))
    for role, changes in CONDITIONS.items():
        with suppress(NotMeasuredError):
            run = network(results, "train", names.get(role))
            table = results.table("train", run.item, ("replica", "epoch", "train_loss", "validation_loss"))
            if table is not None and run.is_but_for(first, **changes):
                found[role] = run, table
    return found


def _accuracy(role: str) -> Measure:
    """Appendix A: test accuracy (percent), with the longest class capsule as the answer."""

    def measure(results: Results) -> Finding:
        found = network(results, "evaluate", results.evidence.capsnet.runs.get(role))
        accuracy = found.numbers.needed("test", "accuracy").scaled(100)
        history = results.table("train", found.name, ("replica", "epoch", "train_gradient_norm"))
        notes = [words] if history is not None and (words := stalled(history, found.run)) else []
        return Finding(accuracy, records_of(results, found), remarks=found.shortcomings(role), notes=notes)

    return measure


def slower_to_the_same_loss(results: Results) -> Finding | None:
    """Figure 2: without routing the loss is higher in the first epochs and nearly the same at its best, both with and
    without reconstruction. Our number is the ratio of the best losses without and with routing, with reconstruction,
    over replicas.
    """
    trained = trained_conditions(results)
    if len(trained) < len(CONDITIONS):
        return None
    losses = {
        role: table.pivot_table(index="epoch", columns="replica", values="validation_loss")
        for role, (_, table) in trained.items()
    }
    ratios, slower, notes = [], [], []
    for words, ending in (("with", ""), ("without", "_margin")):
        with_, without = losses[f"routed{ending}"], losses[f"unrouted{ending}"]
        ratios.append(Measured.of(without.min() / with_.min()))
        first = min(len(with_), len(without), FIRST_EPOCHS)
        early = np.log(without.to_numpy()[:first] / with_.to_numpy()[:first])
        slower.append(float(np.exp(early.mean())))
        notes.append(
            f"{words} reconstruction, loss without routing / with it: "
            f"{slower[-1]:.2f} in the first {FIRST_EPOCHS} epochs, {ratios[-1].mean:.2f} at best"
        )
    same = all(1 / LIKE_LOSS < ratio.mean < LIKE_LOSS for ratio in ratios)
    holds = same and all(ratio > SLOWER for ratio in slower)
    said = unique(words for role, (run, _) in trained.items() for words in run.shortcomings(role))
    shortcomings = [Remark("loss of shifted validation images (paper: test)"), *said]
    records = records_of(results, *(run for run, _ in trained.values()))
    return Finding(ratios[0], records, holds=holds, remarks=shortcomings, notes=notes)


MEASURES: dict[str, Measure] = {
    "001.acc.r3": _accuracy("routed"),
    "001.acc.r0": _accuracy("unrouted"),
    "001.acc.r3norec": _accuracy("routed_margin"),
    "001.acc.r0norec": _accuracy("unrouted_margin"),
    "001.fig2": slower_to_the_same_loss,
}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Figure 2: the network with routing and reconstruction, and those that differ from it in nothing else."""
    with suppress(NotMeasuredError):
        trained = trained_conditions(results)
        run = trained["routed"][0].run
        yield Drawing(
            f"capsnet-losses-{run.dataset}",
            "svg",
            f"CapsNet's loss with and without routing, {run.dataset}",
            "Means over seeds. Shifted validation images stand for the test images of Figure 2 of "
            "document 001. Losses with and without reconstruction are different functions, which nearly coincide "
            "where its weight is small.",
            "Training and validation loss per epoch of four conditions.",
            [record for found, _ in trained.values() for record in found.numbers.records],
            partial(losses_by_condition, {role: table for role, (_, table) in trained.items()}),
        )


@in_house_style
def losses_by_condition(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Figure 2: training and validation loss per epoch on a logarithmic axis."""
    figure, axes = panels(2, 2.5, sharey=True)
    for role, table in tables.items():
        colour, dashes, words = _LOOKS[role]
        means = table.groupby("epoch")[["train_loss", "validation_loss"]].mean()
        for axis, column in zip(axes, means, strict=True):
            axis.plot(means.index, means[column], color=colour, linestyle=dashes, label=words)
    for axis, title in zip(axes, ("training", "validation"), strict=True):
        axis.set(yscale="log", title=title, xlabel="epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("loss")
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].yaxis.set_minor_locator(NullLocator())
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
