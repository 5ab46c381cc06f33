"""Removing from the lock what dvc.yaml no longer has."""

from __future__ import annotations

from pathlib import Path

import yaml
from dvc.repo import Repo
from script_modules import load


def test_items_that_are_gone_leave_the_lock_and_the_others_stay(tmp_path: Path) -> None:
    Repo.init(str(tmp_path), no_scm=True).close()
    stage = {"foreach": "${runs}", "do": {"cmd": "true ${key}"}}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train": stage}}))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"runs": {"a": {}, "b": {}}}))
    kept = {"schema": "2.0", "stages": {"train@a": {"cmd": "true a"}}}
    lock = {**kept, "stages": {**kept["stages"], "train@c": {"cmd": "true c"}, "sweep@a-45": {"cmd": "true"}}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    assert load("prune_lock").prune(tmp_path) == ["sweep@a-45", "train@c"]
    content = (tmp_path / "dvc.lock").read_text()
    assert yaml.safe_load(content) == kept
    assert load("prune_lock").prune(tmp_path) == []
    assert (tmp_path / "dvc.lock").read_text() == content
