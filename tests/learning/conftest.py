"""Training runs without Pyro's checks, which branch on values and so do not run under vmap."""

from __future__ import annotations

from collections.abc import Iterator

import pyro
import pytest


@pytest.fixture(autouse=True)
def unchecked(pyro_checks: None) -> Iterator[None]:
    pyro.enable_validation(False)
    yield
