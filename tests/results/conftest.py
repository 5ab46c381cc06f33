"""Fixtures of the tests of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from records import ResultFiles


@pytest.fixture
def files(tmp_path: Path) -> ResultFiles:
    """A writer into an empty folder."""
    return ResultFiles(tmp_path / "records", tmp_path / "arrays")
