"""A small classification problem for every test here."""

from __future__ import annotations

import pytest
from planted import planted
from torch import Tensor


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return planted()
