"""The results for the conditions of document 001, and how far their settings are from the paper's.

A condition is whether votes are routed (with the paper's three iterations) and whether the loss has a reconstruction
term (appendix A). Settings are those that a result recorded. Two results are compared only if their networks differ in
nothing but what the comparison is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.results.findings import NOT_THE_PAPERS_DATA
from pipeline.results.reading import Numbers, Record, Recorded, Results, distinct, natural, unique, with_training

PAPER_SOURCE, PAPER_DATASET = "mnist", "MNIST"
PAPER_TRAIN_IMAGES = 60_000
PAPER_ITERATIONS, PAPER_EPOCHS = 3, 13
PAPER_MODEL = {
    "channels": 256, "kernel": 9, "strides": [1, 2], "types": 32, "primary_size": 8, "class_size": 16,
    "counting": "updates", "decoder": [512, 1024],
}  # fmt: skip
PAPER_RECONSTRUCTION = "mean"
"""Scaling of the reconstruction in the code behind the document."""
PAPER_BATCH, PAPER_SHIFT = 128, 2
PAPER_RATE = 0.01
FORWARD, START = "forward", "start"
PLAIN, SPARSER = "predicted-clamped-none", "predicted-clamped-L1-1"
"""Names in results: the forward pass of all test images, of those used for inference, and Figures 1D and 1E."""
ALMOST_ALL = 0.95
"""Share of images that counts as almost all."""


class Condition(NamedTuple):
    """One of the four conditions of appendix A."""

    routed: bool
    reconstructed: bool

    @property
    def words(self) -> str:
        """Such as "no routing, reconstruction"."""
        return f"{'routing' if self.routed else 'no routing'}, {'' if self.reconstructed else 'no '}reconstruction"


CONDITIONS = [Condition(routed, reconstructed) for reconstructed in (True, False) for routed in (True, False)]


@dataclass(frozen=True)
class Network:
    """A result about a trained CapsNet.

    Attributes:
        item: the item of the stage that made it.
        run, dataset: the settings of the network and of its data, as recorded in the result.
        inference: the settings of iterative inference; None for results of other stages.
    """

    item: str
    numbers: Numbers
    run: Recorded
    dataset: Recorded
    inference: Recorded | None = None

    @property
    def name(self) -> str:
        """The run that it is about."""
        return str(self.inference.run) if self.inference else self.item

    @property
    def evenly_weighted(self) -> bool:
        """Whether votes are averaged over the capsules above and never weighted by agreement: a single sum."""
        return bool(self.run.model.iterations == 1 and self.run.model.counting == "sums")

    @property
    def condition(self) -> Condition | None:
        """The network's condition; None if it has another number of iterations than the paper's."""
        if self.run.model.iterations not in (0, PAPER_ITERATIONS):
            return None
        return Condition(self.run.model.iterations > 0, self.run.model.reconstruction != "none")


def unrouted_with_middle(found: Sequence[Network]) -> list[Network]:
    """Results with a middle layer and reconstruction, and without routing: sums of votes, then averages of them."""
    summed = candidates(found, Condition(routed=False, reconstructed=True), middle=True)
    averaged = (
        each
        for each in found
        if each.evenly_weighted and each.run.model.middle and each.run.model.reconstruction != "none"
    )
    return sorted([*summed, *averaged], key=_rank)


def without_middle(found: Sequence[Network], network: Network) -> list[Network]:
    """Results for the same network without its middle layer."""
    return like(found, network, middle=0)


def networks(results: Results, stage: str) -> list[Network]:
    """Results of `train` or `evaluate` for CapsNets: the conditions in the paper's order, middle layers last.

    Raises:
        ResultError: a result is corrupt, or lacks the settings of its run.
    """
    executed = ((item, numbers, numbers.run(item)) for item, numbers in results.executed(stage))
    found = (
        Network(item, numbers, run, numbers.dataset_of(item))
        for item, numbers, run in executed
        if run.variant == "capsnet"
    )
    return sorted(found, key=_place)


def studies(results: Results) -> list[Network]:
    """Results of iterative inference, in the order of `networks`. Raises `ResultError` as `networks`."""
    found = []
    for item, numbers in results.executed("infer"):
        inference = numbers.settings.infer[item]
        name = inference.run
        found.append(Network(item, numbers, numbers.run(name), numbers.dataset_of(name), inference))
    return sorted(found, key=_place)


def _place(network: Network) -> tuple[bool, int]:
    condition = network.condition
    return bool(network.run.model.middle), CONDITIONS.index(condition) if condition else len(CONDITIONS)


def candidates(found: Sequence[Network], condition: Condition, *, middle: bool = False) -> list[Network]:
    """Results of one condition, with a middle layer or without, preferred ones first."""
    return sorted(
        (each for each in found if each.condition == condition and bool(each.run.model.middle) == middle), key=_rank
    )


def like(found: Sequence[Network], network: Network, **changes: Any) -> list[Network]:
    """Results for the same network, or with `changes` for one that differs in just these fields of its model.

    Preferred ones come first.
    """
    wanted = {**network.run, "model": {**network.run.model, **changes}}
    return sorted((each for each in found if each.run == wanted and each.dataset == network.dataset), key=_rank)


def family(found: Sequence[Network], network: Network) -> dict[Condition, Network]:
    """All conditions that have results, for networks that otherwise equal one with routing and reconstruction."""
    first: dict[Condition, Network] = {}
    for condition in CONDITIONS:
        routing = {} if condition.routed else {"iterations": 0}
        reconstruction = {} if condition.reconstructed else {"reconstruction": "none"}
        for each in like(found, network, **routing, **reconstruction)[:1]:
            first[condition] = each
    return first


def pairs(found: Sequence[Network], *, reconstructed: bool) -> Iterator[tuple[Network, Network]]:
    """Pairs of a result with routing and one of the same network without, preferred ones first."""
    for routed in candidates(found, Condition(routed=True, reconstructed=reconstructed)):
        for unrouted in like(found, routed, iterations=0):
            yield routed, unrouted


def records_of(results: Results, *found: Network) -> list[Record]:
    """The provenance of results, each after that of its network's training."""
    return distinct(record for each in found for record in with_training(results, each.numbers, each.name))


def rises(numbers: Numbers) -> bool:
    """Whether the energies of a study, with L1 or without a penalty, rose in more than a few images."""
    falls = (numbers.number("condition", each, "class", "falls", "mean") for each in (SPARSER, PLAIN))
    return any(share is not None and share < ALMOST_ALL for share in falls)


def _rank(network: Network) -> tuple[Any, ...]:
    """A sort key: the paper's data first, then fewer differences from its settings, more seeds, more epochs, name.

    Among studies of one network, those whose energies fall come first (if they rise, the rate is too high and inference
    does not converge), then the paper's rate, more images, more steps.
    """
    elsewhere = network.dataset.source != PAPER_SOURCE
    of_network = (elsewhere, len(_differences(network)), -network.run.replicas, -network.run.training.epochs)
    inference = network.inference
    of_study = (
        (rises(network.numbers), inference.rate != PAPER_RATE, -inference.images, -inference.steps) if inference else ()
    )
    return (*of_network, *of_study, natural(network.item))


def _differences(network: Network) -> list[str]:
    """How a network and its training differ from the paper's, each as "name ours / the paper's"."""
    run = network.run
    settings = [(name.replace("_", " "), run.model[name], theirs) for name, theirs in PAPER_MODEL.items()]
    if run.model.reconstruction != "none":
        settings.append(("reconstruction", run.model.reconstruction, PAPER_RECONSTRUCTION))
    settings += [
        ("images a batch", run.training.batch_size, PAPER_BATCH),
        ("pixels of shift", run.augmentation.shift, PAPER_SHIFT),
        ("epochs", min(run.training.epochs, PAPER_EPOCHS), PAPER_EPOCHS),
    ]
    return [f"{name} {ours} / {theirs}" for name, ours, theirs in settings if ours != theirs]


def shortcomings(*found: Network) -> list[str]:
    """How the data and training of networks fall short of the paper's; each remark once."""
    remarks: list[str] = unique(_about_data(each) for each in found)
    if listed := unique(difference for each in found for difference in _differences(each)):
        remarks.append(f"{', '.join(listed)} (ours / the paper's)")
    return remarks


def _about_data(network: Network) -> str | None:
    if network.dataset.source != PAPER_SOURCE:
        return f"{NOT_THE_PAPERS_DATA} ({PAPER_DATASET})"
    if network.dataset.train < PAPER_TRAIN_IMAGES:
        return f"trained on {network.dataset.train:,} images (paper: {PAPER_TRAIN_IMAGES:,})"
    return None
