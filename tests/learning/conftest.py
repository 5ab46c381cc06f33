"""Training runs without Pyro's checks, which branch on values and so do not run under vmap."""

from __future__ import annotations

import pyro
import pytest


@pytest.fixture(autouse=True)
def unchecked(pyro_checks: None) -> None:
    pyro.enable_validation(False)
