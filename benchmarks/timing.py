"""Times a row of `reports/bench.json`: a work (a function), a bound on its time, and a reference for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Other:
    """A duration, `times` x `seconds`, that one call of a work is compared with.

    Attributes:
        seconds: a number; or another work, one call of which is timed in every round beside the work. The machine's
            speed drifts by more than the differences of interest, but little within a round.
        what: description of the duration, for the table.
        times: a factor: how many calls of the other work correspond to one call of the work.
    """

    seconds: float | Work
    what: str
    times: float = 1.0


@dataclass(frozen=True)
class Timed:
    """What a row times.

    Attributes:
        work: the function. Its calls are timed.
        unit: unit of the row: "s" or "ms", or a time per quantity, such as "ms/image".
        count: the quantity that one call works on, such as the number of images.
        bound: the least possible duration of one call.
        reference: the duration that one call should be shorter than.
        threads: number of CPU threads; 0 for torch's default.
        note: what the work was measured on, such as the batch size.
    """

    work: Work
    unit: str = "ms"
    count: float = 1
    bound: Other | None = None
    reference: Other | None = None
    threads: int = 0
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One measured duration.

    Attributes:
        name: what was measured; with the device it identifies the row.
        limit: the least possible value, in `unit`. `limit_is` describes it.
        share_of_limit: limit / value; 1 if the work is as fast as possible.
        reference: the value to compare with, in `unit`. `reference_is` describes it.
        ratio: reference / value; above 1 if the work is faster than the reference.
        note: number of rounds, and what was measured.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    share_of_limit: float | None = None
    reference: float | None = None
    ratio: float | None = None
    limit_is: str = ""
    reference_is: str = ""
    note: str = ""

    def rounded(self) -> dict[str, float | str | None]:
        """The row as a dict for JSON. Numbers have four significant digits."""
        return {
            name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in asdict(self).items()
        }


def measure(name: str, timed: Timed, device: torch.device, limit: float) -> Row:
    """Time a row. The value is the median over rounds. A ratio of two works is the median of the ratios in each round.

    Args:
        limit: seconds after which no further round begins. There are at least three rounds, or one if it is 0.
    """
    others = {"bound": timed.bound, "reference": timed.reference}
    works = {
        "work": timed.work,
        **{key: each.seconds for key, each in others.items() if each and callable(each.seconds)},
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(timed.threads or threads)
    try:
        samples = in_turn(works, device, limit, least=3 if limit else 1)
    finally:
        torch.set_num_threads(threads)
    seconds = median(samples["work"])

    def ratio(key: str) -> float | None:
        """The duration of the work, divided by that of the bound or reference `key`; None if there is none."""
        other = others[key]
        if other is None:
            return None
        if not callable(other.seconds):
            return seconds / (other.times * other.seconds)
        pairs = zip(samples["work"], samples[key], strict=True)
        return median(a / b for a, b in pairs) / other.times

    value = seconds / timed.count * (1e3 if timed.unit.startswith("ms") else 1)
    to_bound, to_reference = ratio("bound"), ratio("reference")
    said = [f"median of {len(samples['work'])} rounds", timed.note]
    return Row(
        name,
        value,
        timed.unit,
        limit=value / to_bound if to_bound else None,
        share_of_limit=1 / to_bound if to_bound else None,
        reference=value / to_reference if to_reference else None,
        ratio=1 / to_reference if to_reference else None,
        limit_is=timed.bound.what if timed.bound else "",
        reference_is=timed.reference.what if timed.reference else "",
        note=", ".join(filter(None, said)),
    )


def in_turn(works: dict[str, Work], device: torch.device, limit: float, least: int = 3) -> dict[str, list[float]]:
    """Seconds of every call, by the name of the work. A round calls each work once, so conditions are alike for all.

    Every second round has the reverse order. Before the first round, each work is called once without timing.

    Args:
        limit: seconds after which no further round begins. There are at least `least` rounds.
    """
    for work in works.values():
        work()
    samples: dict[str, list[float]] = {name: [] for name in works}
    begun, rounds = time.monotonic(), 0
    while rounds < least or time.monotonic() - begun < limit:
        for name in works if rounds % 2 == 0 else reversed(works):
            samples[name].append(_seconds(works[name], device))
        rounds += 1
    return samples


def _seconds(work: Work, device: torch.device) -> float:
    """Seconds of one call of `work`, until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
