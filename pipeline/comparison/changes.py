"""The claims whose number or verdict differs between two sides, and whether chance alone explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.comparison.noise import Noise, Spread, of_difference
from pipeline.comparison.sides import Answer, Side

Word = Literal["moved", "noise unknown", "only one side has it", "within noise"]
WORDS: tuple[Word, ...] = ("moved", "noise unknown", "only one side has it", "within noise")
"""What is said of a claim that differs, the most interesting first."""

TOLERATED_SDS = 2.0
"""A number moved if it differs by more than so many standard deviations of its noise."""


@dataclass(frozen=True)
class Change:
    """A claim that differs; `before` or `after` is None if that side did not run it.

    Attributes:
        noise: of the difference of the numbers; None if it is unknown, or there are no two numbers.
    """

    id: str
    before: Answer | None
    after: Answer | None
    noise: Noise | None
    word: Word

    @property
    def difference(self) -> float | None:
        """By how much the number rose, in its unit; None without two numbers."""
        if self.before is None or self.after is None or self.before.value is None or self.after.value is None:
            return None
        return self.after.value - self.before.value


def changes(
    before: Side, after: Side, spreads: tuple[Mapping[str, Spread], Mapping[str, Spread]] = ({}, {})
) -> list[Change]:
    """The claims that differ, what moved first.

    Args:
        spreads: each side's spread between machines, by the claim's id.
    """
    found = []
    for claim in dict.fromkeys([*before.answers, *after.answers]):
        answers = [side.answers.get(claim) for side in (before, after)]
        old, new = (answer if answer and answer.was_run else None for answer in answers)
        if (old is None and new is None) or (
            old is not None and new is not None and (old.value, old.verdict) == (new.value, new.verdict)
        ):
            continue
        found.append(_change(claim, old, new, (spreads[0].get(claim), spreads[1].get(claim))))
    return sorted(found, key=lambda change: WORDS.index(change.word))


def _change(claim: str, old: Answer | None, new: Answer | None, spreads: tuple[Spread | None, Spread | None]) -> Change:
    if old is None or new is None:
        return Change(claim, old, new, None, "only one side has it")
    if old.value is None or new.value is None:
        seen = set().union(*(each.verdicts for each in spreads if each))
        by_chance = {old.verdict, new.verdict} <= seen
        return Change(claim, old, new, None, "within noise" if by_chance else "moved" if seen else "noise unknown")
    noise = of_difference(old, new, spreads)
    if noise is None:
        return Change(claim, old, new, None, "noise unknown")
    # A little slack for rounding: two machines' own difference is the limit.
    moved = abs(new.value - old.value) > TOLERATED_SDS * noise.sd + 1e-9
    return Change(claim, old, new, noise, "moved" if moved else "within noise")
