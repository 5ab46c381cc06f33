"""The noise of a claim's number: how much the number differs between seeds, or between machines with the same code.

Machines differ in rounding, and training amplifies the differences. The file `reports/<profile>/noise.json` has the
spread between machines, measured with the same code and settings. If a run has one seed, only this spread is known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import stdev

from scipy import stats

from pipeline.comparison.sides import NOT_RUN, Answer, Side
from pipeline.errors import UserError
from pipeline.files import read_json, write_json
from pipeline.layout import Layout


@dataclass(frozen=True)
class Spread:
    """The spread of a claim between machines.

    Attributes:
        sd: sample standard deviation of our number over machines, in the number's unit; 0 if `n` is 1, None for a claim
            without a number.
        n: number of machines. If all claims from the same items as this claim have equal numbers on two machines, these
            machines are not independent, and count as one. For a claim without a number, all machines are counted.
        verdicts: the claim's distinct verdicts on the machines.
        repetitions: number of repetitions (mostly seeds) over which each machine's number is averaged.
    """

    sd: float | None
    n: int
    verdicts: list[str]
    repetitions: int = 1


@dataclass(frozen=True)
class Noise:
    """The noise of the difference between two numbers.

    Attributes:
        sd: standard deviation of the difference, in the number's unit; above 0.
        degrees: degrees of freedom of the estimate `sd`.
        source: the data from which `sd` was estimated, in words.
    """

    sd: float
    degrees: int
    source: str

    def chance(self, difference: float) -> float:
        """The two-sided p-value of `difference` in Student's t-test of the hypothesis that nothing changed."""
        return float(2 * stats.t.sf(abs(difference) / self.sd, self.degrees))


def read(root: Path, profile: str) -> dict[str, Spread]:
    """The spread between machines, by the claim's id. Empty if it was not measured."""
    path = Layout(root, profile).noise_path
    content = read_json(path) if path.exists() else {"claims": {}}
    return {claim: Spread(**values) for claim, values in content["claims"].items()}


def measure(sides: Sequence[Side]) -> tuple[dict[str, Spread], dict[str, list[str]]]:
    """The spread of every claim between `sides`, whose results were made on different machines.

    Returns:
        Two dictionaries: the spreads by the claim's id, and the ids of claims that were skipped, by reason in words.

    Raises:
        UserError: there is only one side, the profiles differ, or no measurable claim differs between the sides.
    """
    if len(sides) < 2:
        raise UserError("--noise needs at least two revisions, with results of different machines")
    if len({side.profile for side in sides}) > 1:
        raise UserError("--noise needs results of one profile")
    claims: dict[str, Spread] = {}
    skipped: dict[str, list[str]] = {}
    for claim in dict.fromkeys(name for side in sides for name in side.answers):
        answers = [side.answers[claim] for side in sides if claim in side.answers]
        if reason := _obstacle(answers, len(sides)):
            skipped.setdefault(reason, []).append(claim)
            continue
        different = _different(sides, answers[0].items)
        values = [value for side in different if (value := side.answers[claim].value) is not None]
        statement, verdicts = len(values) < len(different), sorted({answer.verdict for answer in answers})
        sd = None if statement else stdev(values) if len(values) > 1 else 0.0
        claims[claim] = Spread(sd, len(answers if statement else values), verdicts, answers[0].n)
    if not any(each.sd or len(each.verdicts) > 1 for each in claims.values()):
        equal = {"with the same answer on all machines": list(claims)} if claims else {}
        reasons = "; ".join(f"{len(names)} {reason}" for reason, names in (equal | skipped).items())
        raise UserError(f"the spread between machines cannot be measured for any claim: {reasons}")
    return claims, skipped


def write(root: Path, sides: Sequence[Side], claims: Mapping[str, Spread]) -> Path:
    """Write the spreads to `noise.json`, and return the path of this file. Raises `UserError` if writing fails."""
    path = Layout(root, sides[0].profile).noise_path
    machines = []
    for side in sides:
        devices = {answer.device for answer in side.answers.values() if answer.device}
        machines.append({"revision": side.tree.commit or side.tree.name, "devices": sorted(devices)})
    write_json(path, {"machines": machines, "claims": {key: asdict(each) for key, each in claims.items()}})
    return path


def of_difference(before: Answer, after: Answer, spreads: tuple[Spread | None, Spread | None]) -> list[Noise]:
    """Up to two estimates of the noise of the difference between two numbers.

    The first estimate needs at least one number that is a mean of several repetitions (mostly seeds). It pools the
    standard deviations of both numbers over repetitions. If only one number has several repetitions, its standard
    deviation is used for both. The second estimate needs, for each number, a spread over two or more machines.
    Estimates of 0 are omitted, because a few results may be equal by chance.
    """
    found = []
    if degrees := before.n + after.n - 2:
        squares = (
            (answer.n - 1) * answer.sd**2 * (answer.n if answer.standard_error else 1) for answer in (before, after)
        )
        pooled = sum(squares) / degrees
        sd = math.sqrt(pooled * (1 / before.n + 1 / after.n))
        found.append(Noise(sd, degrees, f"{before.n} and {after.n} repetitions"))
    machines = [  # (sd, number of machines); the sd of a mean of r seeds is rescaled to a mean of n seeds
        (each.sd * math.sqrt(each.repetitions / answer.n), each.n)
        for each, answer in zip(spreads, (before, after), strict=True)
        if each is not None and each.sd is not None and each.n > 1
    ]
    if len(machines) == len(spreads):
        count = min(n for _, n in machines)
        found.append(Noise(math.hypot(*(sd for sd, _ in machines)), count - 1, f"{count} machines"))
    return [noise for noise in found if noise.sd > 0]


def same(first: float | None, second: float | None) -> bool:
    """Whether two numbers are both None, or equal up to a relative error of 1e-9 or an absolute error of 1e-12."""
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _different(sides: Sequence[Side], items: tuple[str, ...]) -> list[Side]:
    """The sides without duplicates: if sides have equal numbers for all claims from `items`, only the first is kept."""
    found: dict[tuple[str, ...], Side] = {}
    for side in sides:
        numbers = [answer.value for answer in side.answers.values() if answer.items == items]
        found.setdefault(tuple(f"{number:.9g}" for number in numbers if number is not None), side)
    return list(found.values())


def _obstacle(answers: Sequence[Answer], wanted: int) -> str:
    """The reason why a claim's answers cannot be used for the spread between machines. Empty if they can be used."""
    if len(answers) < wanted or NOT_RUN in {answer.verdict for answer in answers}:
        return "not run in every revision"
    runs = [run for answer in answers for run in answer.runs]
    if len(set(runs)) < len(runs):
        return "with a result that two revisions share (not made again on each machine)"
    if len({answer.n for answer in answers}) > 1:
        return "with differing numbers of repetitions"
    return "from differing commits or settings" if len({answer.made_by for answer in answers}) > 1 else ""
