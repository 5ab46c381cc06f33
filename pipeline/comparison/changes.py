"""The claims whose number or verdict differs between two sides, and whether chance alone explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.comparison.noise import Noise, Spread, of_difference
from pipeline.comparison.sides import Answer, Side

Word = Literal["moved", "noise unknown", "only one side has it", "within noise"]
WORDS: tuple[Word, ...] = ("moved", "noise unknown", "only one side has it", "within noise")
"""What is said of a claim that differs, the most interesting first."""

LEVEL = 0.05
"""The probability, at most, that any claim of a comparison is said to have moved although nothing changed."""


@dataclass(frozen=True)
class Change:
    """A claim that differs; `before` or `after` is None if that side did not run it.

    Attributes:
        noise: of the difference of the numbers; None if it is unknown, or there are no two numbers.
        chance: the probability of such a difference if nothing had changed; None where the noise is.
    """

    id: str
    before: Answer | None
    after: Answer | None
    word: Word
    noise: Noise | None = None
    chance: float | None = None

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
    compared = 0  # numbers whose noise is known, differ they or not
    for claim in dict.fromkeys([*before.answers, *after.answers]):
        answers = [side.answers.get(claim) for side in (before, after)]
        old, new = (answer if answer and answer.was_run else None for answer in answers)
        if old is None and new is None:
            continue
        change = _change(claim, old, new, (spreads[0].get(claim), spreads[1].get(claim)))
        compared += change.noise is not None
        if old is None or new is None or (old.value, old.verdict) != (new.value, new.verdict):
            found.append(change)
    return sorted(_judged(found, compared), key=lambda change: WORDS.index(change.word))


def _change(claim: str, old: Answer | None, new: Answer | None, spreads: tuple[Spread | None, Spread | None]) -> Change:
    """A claim before it is judged beside the others: what has a noise is within it."""
    if old is None or new is None:
        return Change(claim, old, new, "only one side has it")
    if old.value is None or new.value is None:
        seen = set().union(*(each.verdicts for each in spreads if each))
        return Change(claim, old, new, "within noise" if {old.verdict, new.verdict} <= seen else "noise unknown")
    difference = new.value - old.value
    known = [(noise.chance(difference), noise) for noise in of_difference(old, new, spreads)]
    if not known:
        return Change(claim, old, new, "noise unknown")
    chance, noise = max(known, key=lambda each: each[0])
    return Change(claim, old, new, "within noise", noise, chance)


def _judged(found: Sequence[Change], compared: int) -> list[Change]:
    """The changes, those moved that are beyond chance among so many numbers (Holm's step-down procedure)."""
    moved = set()
    numbers = [(change.chance, change.id) for change in found if change.chance is not None]
    for rank, (chance, claim) in enumerate(sorted(numbers)):
        if chance > LEVEL / (compared - rank):
            break
        moved.add(claim)
    return [replace(change, word="moved") if change.id in moved else change for change in found]
