"""Training runs without Pyro's checks, as in the stages."""

from __future__ import annotations

import pyro
import pytest


@pytest.fixture(autouse=True)
def unchecked(pyro_checks: None) -> None:
    pyro.enable_validation(False)
