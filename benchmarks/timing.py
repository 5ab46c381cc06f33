"""How a row of `reports/bench.json` is timed: a work, the least that it can take, and another way to do the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Other:
    """What a work is compared with.

    Attributes:
        seconds: of one call of the work; or a work that is timed in the same rounds, because the machine's speed drifts
            by more than what is asked for.
        what: what it is.
        times: how many calls of the other work one call of the work is compared with.
    """

    seconds: float | Work
    what: str
    times: float = 1.0


@dataclass(frozen=True)
class Timed:
    """What a row times.

    Attributes:
        work: one call is timed.
        unit: of the row: "s" or "ms", perhaps for each of something, "ms/image".
        count: how many of these one call works on.
        bound: the least that one call can take.
        reference: what it is to be faster than.
        threads: CPU threads; 0: as many as torch takes.
        note: on what it was measured.
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
        limit: the least possible, in `unit`; `limit_is` says how it was found.
        share_of_limit: the limit through the value: 1 is all that is possible.
        reference: the value compared with, in `unit`; `reference_is` says what it is.
        ratio: how many times as fast as the reference.
        note: how it was measured.
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
        """The row as JSON, numbers to four digits."""
        return {
            name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in asdict(self).items()
        }


def measure(name: str, timed: Timed, device: torch.device, limit: float) -> Row:
    """Time a row: the median over rounds, and the medians of the ratios within a round.

    Args:
        limit: seconds after which no further round begins, once there were three.
    """
    others = {"bound": timed.bound, "reference": timed.reference}
    works = {
        "work": timed.work,
        **{key: each.seconds for key, each in others.items() if each and callable(each.seconds)},
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(timed.threads or threads)
    try:
        samples = in_turn(works, device, limit)
    finally:
        torch.set_num_threads(threads)
    seconds = median(samples["work"])

    def ratio(key: str) -> float | None:
        """Times as long as the other takes."""
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
    """Seconds of several works, timed in rounds, each once per round, so that they meet the same conditions.

    Every other round goes backwards, and one round before the first is not counted.

    Args:
        limit: seconds after which no further round begins, once there were `least`.
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
    """How long one call of `work` takes, until the device has done it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
