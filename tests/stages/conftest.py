"""A repository for tests of stages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.profiles import Profiles

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the parameters of profile quick and the stages."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    shutil.copy(Profiles(ROOT).params_path("quick"), folder / "params.yaml")
    shutil.copy(ROOT / "dvc.yaml", folder)
    return folder
