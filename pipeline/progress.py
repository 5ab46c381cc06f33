"""Progress reports of long computations."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], object]
"""A function called with the number of steps just done, such as a progress bar's `update`."""


def no_progress(steps: int) -> None:
    """Reports nothing."""
