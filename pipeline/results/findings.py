"""The finding about one claim, and how far its setting is from the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.results.learned import Learned
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record
from pipeline.results.reading import Results

NOT_THE_PAPERS_DATA = "not the paper's data"
"""The mark of a finding on another data set than the paper's, wherever it is shown."""


@dataclass(frozen=True)
class Finding:
    """The measurement that answers a claim.

    Attributes:
        ours: our number, in the claim's unit.
        holds: whether the statement holds; None for a claim with a number, which the verdict rules judge.
        dataset: label of the data set it was measured on.
        records: provenance of every item that it uses.
        remarks: how the setting differs from the paper's; empty if it does not.
        notes: other observations that a reader of the verdict should know.
        others: our numbers by another protocol, by its name. The scorecard adds them to the notes with their verdicts.
        learned: how far the training came of the network whose error answers the claim; None where nothing is known of
            it, or no error does.
    """

    ours: Measured | None
    dataset: str
    records: list[Record]
    holds: bool | None = None
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    others: dict[str, Measured] = field(default_factory=dict)
    learned: Learned | None = None


Measure = Callable[[Results], Finding | None]
"""Checks one claim on the results of a profile; returns None if the results it needs are missing."""
