"""The results for the conditions of document 001, each with the settings that it recorded.

A condition is whether votes are routed (with the paper's three iterations) and whether the loss has a reconstruction
term (appendix A). Two results are compared only if their networks differ in nothing but what the comparison is about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pipeline.results.documents import remarks
from pipeline.results.provenance import Record, distinct
from pipeline.results.reading import Numbers, Recorded, Results, with_training

PAPER_ITERATIONS = 3
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
    def role(self) -> str:
        """The role of its run in the evidence, and its name in `documents.yaml`."""
        return f"{'routed' if self.routed else 'unrouted'}{'' if self.reconstructed else '_margin'}"

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

    def measure(self, condition: str, layer: str, name: str) -> float:
        """A measure of iterative inference, the mean over replicas; NaN if there is none."""
        found = self.numbers.number("condition", condition, layer, name, "mean")
        return math.nan if found is None else found

    def is_but_for(self, other: Network, **changes: Any) -> bool:
        """Whether it is another's network with `changes` of the model, on the same data."""
        wanted = {**other.run, "model": {**other.run.model, **changes}}
        return self.run == wanted and self.dataset == other.dataset


def evaluated(results: Results) -> list[Network]:
    """Evaluated CapsNets: the conditions in the paper's order, middle layers last.

    Raises:
        ResultError: a result is corrupt, or lacks the settings of its run.
    """
    found = (_network(*each) for each in results.executed("evaluate"))
    return sorted((each for each in found if each.run.variant == "capsnet"), key=_place)


def studies(results: Results) -> list[Network]:
    """Results of iterative inference, in the order of `evaluated`. Raises `ResultError` as it does."""
    return sorted((_study(*each) for each in results.executed("infer")), key=_place)


def network(results: Results, stage: Literal["train", "evaluate"], run: str | None) -> Network | None:
    """The result of a stage for a run; None if there is none."""
    found = results.answering(stage, run)
    return _network(*found) if found else None


def study(results: Results, item: str | None) -> Network | None:
    """The result of iterative inference; None if there is none."""
    found = results.answering("infer", item)
    return _study(*found) if found else None


def _network(item: str, numbers: Numbers) -> Network:
    return Network(item, numbers, numbers.run(item), numbers.dataset_of(item))


def _study(item: str, numbers: Numbers) -> Network:
    inference = numbers.settings.infer[item]
    return Network(item, numbers, numbers.run(inference.run), numbers.dataset_of(inference.run), inference)


def _place(network: Network) -> tuple[bool, int]:
    """By the paper's order of conditions; networks with another number of iterations than the paper's after them."""
    model = network.run.model
    if model.iterations not in (0, PAPER_ITERATIONS):
        return bool(model.middle), len(CONDITIONS)
    return bool(model.middle), CONDITIONS.index(Condition(model.iterations > 0, model.reconstruction != "none"))


def trained_conditions(results: Results) -> dict[Condition, Network]:
    """The trainings that evidence names for the conditions: those whose networks differ in the condition alone."""
    names = results.evidence.capsnet.runs
    found = {each: network(results, "train", names.get(each.role)) for each in CONDITIONS}
    first = found[CONDITIONS[0]]
    if first is None:
        return {}
    alike: dict[Condition, Network] = {}
    for condition, each in found.items():
        routing = {} if condition.routed else {"iterations": 0}
        reconstruction = {} if condition.reconstructed else {"reconstruction": "none"}
        if each and each.is_but_for(first, **routing, **reconstruction):
            alike[condition] = each
    return alike


def inferred_pair(results: Results) -> tuple[Network, Network] | None:
    """Inference with routing and without in networks that differ in nothing else."""
    names = results.evidence.capsnet.inference
    routed, unrouted = study(results, names.get("routed")), study(results, names.get("unrouted"))
    return (routed, unrouted) if routed and unrouted and unrouted.is_but_for(routed, iterations=0) else None


def records_of(results: Results, *found: Network) -> list[Record]:
    """The provenance of results, each after that of its network's training."""
    return distinct(record for each in found for record in with_training(results, each.numbers, each.name))


def shortcomings(network: Network, document: str) -> list[str]:
    """In what a network falls short of the paper's, which `documents.yaml` calls `document`."""
    return remarks("capsnet", document, {**network.run, **(network.inference or {})}, network.dataset)
