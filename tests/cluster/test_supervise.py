from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pipeline.cluster.supervise import link_checkpoints, move_missing
from pipeline.cluster.worker import LOG, PACKAGE_FOLDER, RESULTS, finished, outcome, write_outcome


def test_checkpoints_are_kept_outside_of_the_folder_of_a_run(tmp_path: Path) -> None:
    inside, resume = tmp_path / "run", tmp_path / "resume"
    for folder, text in ((inside / ".cache/resume", "of the bundle"), (resume, "of a later run")):
        for name in ("both", "bundle" if folder != resume else "shared"):
            (folder / name).mkdir(parents=True)
            (folder / name / "checkpoint.safetensors").write_text(text)
    link_checkpoints(inside, resume)
    link = inside / ".cache/resume"
    assert link.is_symlink()
    found = {path.name: (path / "checkpoint.safetensors").read_text() for path in link.iterdir()}
    assert found == {"both": "of a later run", "bundle": "of the bundle", "shared": "of a later run"}


def test_only_what_is_missing_is_moved(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    move_missing(source, target)
    assert not target.exists()
    for folder, text in ((source, "new"), (target, "old")):
        folder.mkdir()
        (folder / "both").write_text(text)
    (source / "one").write_text("new")
    move_missing(source, target)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"both": "old", "one": "new"}


def test_a_run_has_finished_if_its_results_and_exit_code_are_there(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("one\ntwo\n")
    assert finished(tmp_path) is None
    assert (outcome(tmp_path, 143).code, outcome(tmp_path, 0).code) == (143, 1), "there are no results"
    assert outcome(tmp_path, 143).output == "one\ntwo"
    write_outcome(tmp_path, 0, 2.5)
    assert finished(tmp_path) is None
    (tmp_path / RESULTS).write_text("results")
    assert finished(tmp_path) == 2.5
    assert outcome(tmp_path, 0).size == 7
    write_outcome(tmp_path, 3, 2.5)
    assert finished(tmp_path) is None
    assert outcome(tmp_path, 0).code == 3


def test_a_damaged_bundle_is_answered_and_the_error_is_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar").write_bytes(b"no bundle")
    order = {"folder": str(tmp_path), "resume": str(tmp_path / "resume"), "log": str(tmp_path / LOG)}
    command = [sys.executable, "-m", "pipeline.cluster.supervise"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=PACKAGE_FOLDER, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(order), file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline()) == {"code": 1}
        process.stdin.close()
        assert process.wait(30) == 0, "it ends with its standard input"
    assert "bundle.tar" in (tmp_path / LOG).read_text()
