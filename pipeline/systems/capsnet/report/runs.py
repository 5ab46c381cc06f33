"""The results about CapsNets, each with the settings that it recorded, and the conditions of document 001.

Two results are compared only if their networks differ in nothing but what the comparison is about.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pipeline.results.documents import remarks
from pipeline.results.findings import Remark
from pipeline.results.provenance import Record, distinct
from pipeline.results.reading import Numbers, Recorded, Results, with_training

CONDITIONS: dict[str, dict[str, Any]] = {
    "routed": {},
    "unrouted": {"iterations": 0},
    "routed_margin": {"reconstruction": "none"},
    "unrouted_margin": {"iterations": 0, "reconstruction": "none"},
}
"""The conditions of appendix A, as evidence and `documents.yaml` call them, and what they change in the first's model:
whether votes are routed, and whether the loss has a reconstruction term.
"""

Stage = Literal["train", "evaluate", "infer"]


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


def network(results: Results, stage: Stage, item: str | None) -> Network:
    """The result of a stage. Raises `NotMeasuredError` if there is none."""
    item, numbers = results.answering(stage, item)
    inference = numbers.settings.infer[item] if stage == "infer" else Recorded({})
    name = inference.get("run", item)
    return Network(item, numbers, name, numbers.run(name), numbers.dataset_of(name), inference)


def records_of(results: Results, *found: Network) -> list[Record]:
    """The provenance of results, each after that of its network's training."""
    return distinct(record for each in found for record in with_training(results, each.numbers, each.name))
