"""What the tests of bundles stand on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import small_repository


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, committed; tests copy it."""
    root = tmp_path_factory.mktemp("template") / "repository"
    small_repository.create(root)
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """A copy of the repository, of its own."""
    return Path(shutil.copytree(template, tmp_path / "a repository"))
