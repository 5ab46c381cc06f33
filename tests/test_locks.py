"""One process for a stage and item: the lock goes with it, also where it leaves children behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.locks import AlreadyRunningError, is_running, lock_path, single_instance

ROOT = Path(__file__).parents[1]


def test_an_item_runs_while_its_lock_is_held(tmp_path: Path) -> None:
    assert not is_running(tmp_path, "train", "x")
    with single_instance(lock_path(tmp_path, "train@x"), "train@x"):
        assert is_running(tmp_path, "train", "x")
        assert not is_running(tmp_path, "train", "y")
    assert not is_running(tmp_path, "train", "x")
    with single_instance(lock_path(tmp_path, "train@x"), "train@x"):
        assert is_running(tmp_path, "train", "x"), "asking left nothing locked"


@pytest.mark.parametrize("child", ["subprocess.Popen(['sleep', '60']).pid", "os.fork() or time.sleep(60)"])
def test_children_that_outlive_a_killed_process_do_not_keep_its_lock(tmp_path: Path, child: str) -> None:
    code = (
        "import os, subprocess, sys, time\nfrom pathlib import Path\nfrom pipeline.locks import single_instance\n"
        f"with single_instance(Path(sys.argv[1]), 'a'):\n    print({child}, flush=True)\n    time.sleep(60)\n"
    )
    path = tmp_path / "a.lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        try:
            with pytest.raises(AlreadyRunningError), single_instance(path, "a"):
                pytest.fail("no work may be done")
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.kill(number, 0)  # the child lives
            # A forked child closes what it inherited when it first runs: on a busy machine, a moment later.
            deadline = time.monotonic() + 10
            while True:
                try:
                    with single_instance(path, "a"):
                        break
                except AlreadyRunningError:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
        finally:
            os.kill(number, signal.SIGKILL)
