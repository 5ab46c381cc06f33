"""A comparison as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.comparison.changes import WORDS, Change
from pipeline.comparison.sides import NOT_RUN, Answer, Side
from pipeline.profiles import differences


def describe(before: Side, after: Side, found: Sequence[Change], units: Mapping[str, str]) -> list[str]:
    """The parameters that differ (of two profiles only their number), and the claims, as lines of text.

    Args:
        found: from `changes`.
        units: of the claims' numbers, by id.
    """
    sides, profiles = [_named(before), _named(after)], [f"profile {before.profile}", f"profile {after.profile}"]
    where = "" if sides == profiles else f"{' -> '.join(dict.fromkeys(profiles))}: "
    parameters = differences(before.params, after.params)
    listed = parameters if before.profile == after.profile else []
    claims = before.answers.keys() | after.answers.keys()
    return [
        f"{where}{' -> '.join(sides)}",
        "",
        f"parameters: {len(parameters) or 'none'} differ{'s' * (len(parameters) == 1)}",
        *_aligned([(key, f"{_shown(old)} -> {_shown(new)}") for key, old, new in listed]),
        "",
        f"claims: {len(found) or 'none'} of {len(claims)} differ{'s' * (len(found) == 1)}{_counts(found)}",
        *_aligned([(change.word, change.id, *_columns(change, units.get(change.id, ""))) for change in found]),
    ]


def _counts(found: Sequence[Change]) -> str:
    counts = {word: sum(change.word == word for change in found) for word in WORDS}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    return f" ({', '.join(parts)})" if parts else ""


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of the same number of cells as indented lines, with the cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _named(side: Side) -> str:
    commit = side.tree.commit
    return side.tree.name if commit is None or commit.startswith(side.name) else f"{side.name} ({commit[:10]})"


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _columns(change: Change, unit: str) -> tuple[str, str, str, str]:
    """The numbers, the difference with its noise, the verdicts, and the claim with its unit."""
    old, new = change.before, change.after
    numbers = f"{_number(old)} -> {_number(new)}"
    difference = "" if change.difference is None else f"{change.difference:+.3g}"
    if change.noise is not None:
        difference += f", noise {change.noise.sd:.2g} ({change.noise.source}), p = {change.chance:.2g}"
    verdicts = [answer.verdict if answer else NOT_RUN for answer in (old, new)]
    claim = next(answer.claim for answer in (new, old) if answer)
    if numbers == "- -> -":
        numbers, unit = "", ""
    return numbers, difference, " -> ".join(dict.fromkeys(verdicts)), f"{claim} [{unit}]" if unit else claim


def _number(answer: Answer | None) -> str:
    return "-" if answer is None or answer.value is None else f"{answer.value:.4g}"
