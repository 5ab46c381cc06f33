"""How long work says how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], object]
"""Called with the number of steps just done, such as a progress bar's `update`."""


def no_progress(steps: int) -> None:
    """For work that nobody watches."""
