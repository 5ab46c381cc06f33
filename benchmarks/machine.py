"""The machine: its description, its measured ceilings, and how to time on it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import torch
from tqdm import tqdm

from benchmarks.rows import Row, rate
from pipeline.compute import describe

Works = dict[str, Callable[[], object]]
"""Things to time, by name."""

Samples = dict[str, list[float]]
"""Seconds of each sample, by the name of what was timed."""


def describe_machine(device: torch.device) -> str:
    """The device, the threads, torch, and how busy the machine was already, in one line."""
    load = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores before" if hasattr(os, "getloadavg") else ""
    threads = "" if device.type == "cpu" else f", {torch.get_num_threads()} CPU threads"
    return f"{describe(device)}{threads}, torch {torch.__version__}{load}"


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long one call of `work` takes, until the device has done it."""
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Budget:
    """The time a whole benchmark may take, shown as a progress bar."""

    def __init__(self, total: float) -> None:
        self.total = total
        shape = "{desc:<34} {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} s"
        self._bar = tqdm(total=total, bar_format=shape, leave=False, dynamic_ncols=True, disable=None)
        self._begun, self._shown = time.monotonic(), 0.0

    def __enter__(self) -> Budget:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, what: str) -> None:
        """Say what is being measured, and how much of the time is gone."""
        now = time.monotonic()
        if now - self._shown >= 0.2:  # short works come by thousands
            self._shown = now
            self._bar.set_description_str(what, refresh=False)
            self._bar.n = min(now - self._begun, self.total)
            self._bar.refresh()


def in_turn(works: Works, device: torch.device, limit: float, budget: Budget, least: int = 3) -> Samples:
    """Time several things in rounds, each once per round, so that they meet the same conditions.

    Every other round goes backwards, and one round before the first is not counted.

    Args:
        limit: seconds after which no further round begins, once there were `least`.
    """
    for name, work in works.items():
        budget.show(name)
        work()
    samples: Samples = {name: [] for name in works}
    begun, rounds = time.monotonic(), 0
    while rounds < least or time.monotonic() - begun < limit:
        for name in works if rounds % 2 == 0 else reversed(works):
            budget.show(name)
            samples[name].append(seconds(works[name], device))
        rounds += 1
    return samples


def paired_ratio(slower: list[float], faster: list[float]) -> float:
    """How many times as long the first takes as the second: the median over rounds."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))


def ceilings(device: torch.device, limit: float, budget: Budget, quick: bool = False) -> tuple[float, float, list[Row]]:
    """What the machine does at best: bytes copied per second (read and written), and float32 operations of a matrix
    product per second. The best of the samples, since a ceiling is asked for, and of both libraries that PyTorch has on
    a CPU: on an AMD processor with AVX-512, MKL reaches half the rate of oneDNN.
    """
    on_gpu = device.type == "cuda"
    size = (1 << 30 if on_gpu else 1 << 28) >> (4 if quick else 0)  # bytes; well beyond the caches
    side = (8192 if on_gpu else 2048) >> (2 if quick else 0)
    source = torch.rand(size // 4, device=device)
    target = torch.empty_like(source)
    left, right = torch.rand(side, side, device=device), torch.rand(side, side, device=device)
    product = torch.empty_like(left)
    works: Works = {"copy": lambda: target.copy_(source), "matrix product": lambda: torch.mm(left, right, out=product)}
    if not on_gpu and torch.backends.mkldnn.is_available():
        # The operator that `torch.compile` makes of a linear layer.
        one_dnn = torch.ops.mkldnn._linear_pointwise
        works["matrix product of oneDNN"] = lambda: one_dnn(left, right, None, "none", [], "")
    samples = in_turn(works, device, limit, budget)
    products = {name: min(found) for name, found in samples.items() if name != "copy"}
    fastest = min(products, key=lambda name: products[name])
    copied, multiplied = 2 * size / min(samples["copy"]), 2 * side**3 / products[fastest]
    best = f"best of {len(samples['copy'])}"
    of_products = f"{fastest}, float32, {side} x {side}, {best}"
    rows = [
        rate("machine: copy rate", copied / 1e9, "GB/s", note=f"bytes read and written, {size >> 20} MiB, {best}"),
        rate("machine: matrix product rate", multiplied / 1e9, "GFLOP/s", note=of_products),
    ]
    return copied, multiplied, rows
