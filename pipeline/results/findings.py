"""What was found about one claim, and how far its setting is from the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.results.reading import Measured, Record, Results

NOT_THE_PAPERS_DATA = "not the paper's data"
"""How a finding on another data set than the paper's is marked, everywhere it is shown."""


@dataclass(frozen=True)
class Finding:
    """The measurement that answers a claim.

    Attributes:
        ours: our number, in the claim's unit.
        holds: whether the statement holds; None for a claim with a figure, which the verdict rules judge.
        dataset: label of the data set it was measured on.
        records: provenance of every item it rests on.
        remarks: in what the setting differs from the paper's; none where it is the paper's.
        notes: what else was seen that a reader of the verdict should know.
    """

    ours: Measured | None
    dataset: str
    records: list[Record]
    holds: bool | None = None
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Measure = Callable[[Results], Finding | None]
"""Answers one claim from the results of a profile; None where what it needs was not executed."""
