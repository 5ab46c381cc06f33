"""Measures processor and memory of runs from outside their process, so that training does nothing for it."""

from __future__ import annotations

import socket
import time

import psutil

from pipeline.tracking.journal import Event

SAMPLE_SECONDS = 10.0


class Sampler:
    """Samples the processes of runs on this host, each at most every `SAMPLE_SECONDS`."""

    def __init__(self) -> None:
        self._processes: dict[str, psutil.Process] = {}
        self._next: dict[str, float] = {}

    def sample(self, run: str, writer: Event) -> dict[str, float]:
        """Metrics of the process that writes a run, under the names that MLflow shows as system metrics.

        Empty if it is not yet time, or the process runs elsewhere or no longer. The first call only starts the clock.

        Args:
            run: the run's id.
            writer: the event by which its present process began to write it: its `start` or `resume`.
        """
        now = time.monotonic()
        if writer.get("host") != socket.gethostname() or now < self._next.get(run, 0.0):
            return {}
        self._next[run] = now + SAMPLE_SECONDS
        try:
            process = self._processes.get(run)
            known = process is not None and process.pid == writer["process"]
            if process is None or not known:
                process = self._processes[run] = psutil.Process(writer["process"])
            cpu, memory = process.cpu_percent(), process.memory_info().rss
        except (psutil.Error, KeyError, TypeError, ValueError):
            return {}
        if not known:
            return {}
        return {
            "system/process_cpu_percentage": cpu,  # 100: one core
            "system/process_memory_megabytes": memory / 1e6,
            "system/cpu_utilization_percentage": psutil.cpu_percent(),
            "system/system_memory_usage_percentage": psutil.virtual_memory().percent,
        }
