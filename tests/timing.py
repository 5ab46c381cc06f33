"""Times that other work on the machine does not change."""

from __future__ import annotations

import resource
from collections.abc import Callable


def processor_seconds(run: Callable[[], object]) -> float:
    """Processor time of the child processes that a call starts and waits for, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
