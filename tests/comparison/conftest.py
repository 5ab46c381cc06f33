from __future__ import annotations

from pathlib import Path

import pytest
from repository import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Results of one commit made on two machines, tagged `first` and `second`."""
    made = Repository(tmp_path / "a clone")
    made.root.mkdir()
    made.git("init", "-q")
    made.git("symbolic-ref", "HEAD", "refs/heads/main")
    for machine, shift in (("first", 0.5), ("second", -0.5)):
        made.reproduce(machine, shift)
        made.commit(machine)
    return made
