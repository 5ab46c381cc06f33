"""The claims whose number or verdict differs between two sides, and whether chance alone explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.comparison.noise import Noise, Spread, of_difference, same
from pipeline.comparison.sides import Answer, Side

Word = Literal["moved", "noise unknown", "only one side has it", "within noise"]
WORDS: tuple[Word, ...] = ("moved", "noise unknown", "only one side has it", "within noise")
"""What is said of a claim that differs, the most interesting first."""

LEVEL = 0.05
"""The expected share of chance among the claims said to have moved is at most about this. If nothing changed, it is
about the probability that any is said to have moved.
"""


@dataclass(frozen=True)
class Change:
    """A claim that differs; `before` or `after` is None if that side did not run it.

    Attributes:
        noise: of the difference of the numbers; None if it is unknown, or there are no two numbers.
        chance: the probability of such a difference if nothing had changed; None if the noise is unknown.
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
    for claim in dict.fromkeys([*before.answers, *after.answers]):
        answers = [side.answers.get(claim) for side in (before, after)]
        old, new = (answer if answer and answer.was_run else None for answer in answers)
        if (old is None and new is None) or (
            old is not None and new is not None and same(old.value, new.value) and old.verdict == new.verdict
        ):
            continue
        found.append(_change(claim, old, new, (spreads[0].get(claim), spreads[1].get(claim))))
    moved = _beyond_chance(found)
    found = [replace(change, word="moved") if change.id in moved else change for change in found]
    return sorted(found, key=lambda change: WORDS.index(change.word))


def _change(claim: str, old: Answer | None, new: Answer | None, spreads: tuple[Spread | None, Spread | None]) -> Change:
    """The change of one claim; a number whose noise is known is within it until all are judged together."""
    if old is None or new is None:
        return Change(claim, old, new, "only one side has it")
    if old.value is None or new.value is None:
        by_chance = any({old.verdict, new.verdict} <= set(each.verdicts) for each in spreads if each)
        return Change(claim, old, new, "within noise" if by_chance else "noise unknown")
    if same(old.value, new.value):  # another rule or remark, which is not chance
        return Change(claim, old, new, "moved")
    difference = new.value - old.value
    known = [(noise.chance(difference), noise) for noise in of_difference(old, new, spreads)]
    if not known:
        return Change(claim, old, new, "noise unknown")
    chance, noise = max(known, key=lambda each: each[0])
    return Change(claim, old, new, "within noise", noise, chance)


def _beyond_chance(found: Sequence[Change]) -> set[str]:
    """The claims that moved (Benjamini and Hochberg 1995), of all that differ and whose noise is known.

    Equal numbers do not count: most of them rest on nothing that was changed.
    """
    from scipy import stats

    numbers = {change.id: change.chance for change in found if change.chance is not None}
    if not numbers:
        return set()
    adjusted = stats.false_discovery_control(list(numbers.values()))
    return {claim for claim, chance in zip(numbers, adjusted, strict=True) if chance <= LEVEL}
