"""Finds and describes what differs between two sides of a comparison, and tests whether chance explains it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from scipy import stats

from pipeline.comparison.noise import Noise, Spread, of_difference, same
from pipeline.comparison.sides import NOT_RUN, Answer, Side
from pipeline.settings import differences

Word = Literal["moved", "noise unknown", "only one side has it", "within noise"]
WORDS: tuple[Word, ...] = get_args(Word)
"""Each word says how a claim differs between the sides. The most interesting word is first."""

LEVEL = 0.05
"""Approximate upper limit of the false discovery rate. This rate is an expected share: of the tested claims called
"moved", how many differ only by chance. If nothing has changed, it is the probability of calling any "moved".
"""


@dataclass(frozen=True)
class Change:
    """A claim that differs between two sides. `before` or `after` is None if the claim was not run on that side.

    Attributes:
        difference: the number in `after` minus the number in `before`; None if one of them is missing.
        noise: noise of `difference`; of two estimates, the one with the larger p-value; None if unknown or not needed.
        chance: p-value of `difference` under the hypothesis that nothing changed; None if `noise` is None.
    """

    id: str
    before: Answer | None
    after: Answer | None
    word: Word
    difference: float | None = None
    noise: Noise | None = None
    chance: float | None = None


def changes(before: Side, after: Side, spreads: tuple[Mapping[str, Spread], Mapping[str, Spread]]) -> list[Change]:
    """The claims that differ, in the order of `WORDS`. Differences are tested together (Benjamini and Hochberg 1995).

    Args:
        spreads: for `before` and for `after`, the spread of each claim between machines, by the claim's id.
    """
    found = []
    for claim in dict.fromkeys([*before.answers, *after.answers]):
        answers = [side.answers.get(claim) for side in (before, after)]
        old, new = (answer if answer and answer.verdict != NOT_RUN else None for answer in answers)
        alike = old and new and same(old.value, new.value) and old.verdict == new.verdict
        if (old or new) and not alike:
            found.append(_change(claim, old, new, (spreads[0].get(claim), spreads[1].get(claim))))
    # Claims with equal numbers are not tested. Most do not depend on the change, and more tests would lower the power.
    chances = {change.id: change.chance for change in found if change.chance is not None}
    adjusted = stats.false_discovery_control(list(chances.values())) if chances else []
    moved = {claim for claim, chance in zip(chances, adjusted, strict=True) if chance <= LEVEL}
    found = [replace(change, word="moved") if change.id in moved else change for change in found]
    return sorted(found, key=lambda change: WORDS.index(change.word))


def _change(claim: str, old: Answer | None, new: Answer | None, spreads: tuple[Spread | None, Spread | None]) -> Change:
    """The change of one claim. If it has a p-value, its word is "within noise" until `changes` tests all claims."""
    if old is None or new is None:
        return Change(claim, old, new, "only one side has it")
    if old.value is None or new.value is None:
        by_chance = any({old.verdict, new.verdict} <= set(each.verdicts) for each in spreads if each)
        return Change(claim, old, new, "within noise" if by_chance else "noise unknown")
    difference = new.value - old.value
    if same(old.value, new.value):  # only verdicts differ: a rule was changed, so this is not chance
        return Change(claim, old, new, "moved", difference)
    known = [(noise.chance(difference), noise) for noise in of_difference(old, new, spreads)]
    chance, noise = max(known, key=lambda each: each[0], default=(None, None))
    return Change(claim, old, new, "within noise" if noise else "noise unknown", difference, noise, chance)


def describe(before: Side, after: Side, found: Sequence[Change], units: Mapping[str, str]) -> list[str]:
    """The parameters and claims that differ, as lines of text. If the profiles differ, parameters are only counted.

    Args:
        found: the result of `changes`.
        units: units of the claims' numbers, by the claim's id.
    """
    sides, profiles = [_named(before), _named(after)], [f"profile {before.profile}", f"profile {after.profile}"]
    where = "" if sides == profiles else f"{' -> '.join(dict.fromkeys(profiles))}: "
    parameters = differences(before.params, after.params)
    listed = parameters if before.profile == after.profile else []
    claims = before.answers.keys() | after.answers.keys()
    counts = [f"{count} {word}" for word in WORDS if (count := sum(change.word == word for change in found))]
    counted = f" ({', '.join(counts)})" if counts else ""
    return [
        f"{where}{' -> '.join(sides)}",
        "",
        f"parameters: {len(parameters) or 'none'} differ{'s' * (len(parameters) == 1)}",
        *_aligned([(key, " -> ".join("-" if each is None else str(each) for each in pair)) for key, *pair in listed]),
        "",
        f"claims: {len(found) or 'none'} of {len(claims)} differ{'s' * (len(found) == 1)}{counted}",
        *_aligned([(change.word, change.id, *_columns(change, units.get(change.id, ""))) for change in found]),
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Indented lines with aligned columns. All `rows` must have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _named(side: Side) -> str:
    name, commit = side.tree.name, side.tree.commit
    return name if commit is None or commit.startswith(name) else f"{name} ({commit[:10]})"


def _columns(change: Change, unit: str) -> tuple[str, str, str, str]:
    """Four texts: the numbers, the difference with its noise, the verdicts, and the claim with its unit."""
    answers = (change.before, change.after)
    values = ["-" if each is None or each.value is None else f"{each.value:.4g}" for each in answers]
    difference = "" if change.difference is None else f"{change.difference:+.3g}"
    if change.noise is not None:
        difference += f", noise {change.noise.sd:.2g} ({change.noise.source}), p = {change.chance:.2g}"
    verdicts = [each.verdict if each else NOT_RUN for each in answers]
    claim = next(each.claim for each in reversed(answers) if each)
    numbers = "" if set(values) == {"-"} else " -> ".join(values)
    claim += f" [{unit}]" if unit and numbers else ""
    return numbers, difference, " -> ".join(dict.fromkeys(verdicts)), claim
