"""Taking results of a bundle back: checked, put in place together, and recorded with DVC."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pipeline.bundles.archive import BundleError, extract, inside
from pipeline.bundles.checkpoints import about_checkpoint
from pipeline.bundles.contents import differences, item_of, stage_contents
from pipeline.bundles.running import LOG, RESULTS, Results, remove
from pipeline.files import FileWriteError
from pipeline.layout import CHECKPOINTS, JOURNALS

_LOG_LINES = 15


def collect(root: Path, path: Path, recorder: Callable[[Path, Sequence[str]], None] | None = None) -> Results:
    """Put the results of a bundle into the repository, and make DVC know of them.

    If a stage failed or was stopped, the results of those before it are taken, and its checkpoints and tracked run, so
    that it goes on from there; then an error says so.

    Args:
        recorder: records outputs that are in place, instead of `record`.

    Raises:
        BundleError: the file is damaged or incomplete, or the code, the parameters or the inputs are no longer those
            that its stages ran with; every difference is named, and nothing has been changed. Or a stage failed.
        GraphError: a stage is no longer here.
        AlreadyRunningError: one of the stages runs here at the moment.
        FileWriteError: the files cannot be put in place; the earlier ones are.
    """
    from pipeline.dependencies import Graph
    from pipeline.locks import lock_path, single_instance

    cache = root / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="collect-") as made, ExitStack() as locks:
        folder = Path(made) / "results"
        manifest = extract(path, RESULTS, folder)
        results = Results.from_manifest(manifest, str(path))
        contents = results.contents
        _check_places(path, manifest, results)
        graph = Graph.load(root)
        if results.done:
            now = stage_contents(root, contents.stages, graph)
            if changed := differences(contents, now):
                then = f"commit {contents.commit[:10]}{' and its uncommitted changes' * contents.dirty}"
                raise BundleError(
                    f"{path}: {contents.stage} ran with something else than is here now: {'; '.join(changed)} changed. "
                    f"Go back to {then} to collect it, or run it again."
                )
            outputs = [output for step in now.steps if step.stage in results.done for output in step.outputs]
            if set(results.made) != set(outputs):
                raise BundleError(f"{path} has not the outputs of {', '.join(results.done)}: {', '.join(results.made)}")
        for label in (*results.done, *([] if results.failed is None else [results.failed])):
            item_of(graph, label)  # its name becomes that of a file
            locks.enter_context(single_instance(lock_path(root, label), label))
        if results.done:
            replace(root, folder, outputs, Path(made) / "before")
        _take(folder, root, JOURNALS)
        _take(folder, root, CHECKPOINTS)
        if results.done:
            (recorder or record)(root, results.done)
        if results.failed is not None:
            raise BundleError(_failure(path, results, folder / LOG))
    return results


def record(root: Path, stages: Sequence[str]) -> None:
    """Make DVC store the outputs of stages as if it had run them: in dvc.lock, its cache and its run cache.

    `dvc repro` then finds nothing to do for them, and restores them after a change was made and undone.

    Raises:
        BundleError: DVC refuses; its message is given.
    """
    done = _dvc(root, "commit", "--force", "--quiet", *stages)
    if done.returncode:
        raise BundleError(
            f"the outputs are in place, but DVC has not recorded them: {' '.join(done.stderr.split())[-400:]}. "
            f"Mend this, then run: dvc commit --force {' '.join(stages)}"
        )


def stale_inputs(root: Path, stages: Sequence[str]) -> list[str]:
    """Stages that `stages` depend on, directly or not, and whose code, parameters or files changed since DVC ran them.

    Files that are missing do not count: packing names those that it needs.

    Raises:
        BundleError: DVC does not answer.
    """
    done = _dvc(root, "status", "--json", "--with-deps", *stages)
    try:
        status = json.loads(done.stdout)
    except ValueError:
        raise BundleError(f"dvc status failed: {' '.join(done.stderr.split())[-400:]}") from None
    return [stage for stage, reasons in status.items() if stage not in stages and any(map(_is_change, reasons))]


def _is_change(reason: Any) -> bool:
    """Whether an entry of `dvc status` tells more than that files are missing."""
    if not isinstance(reason, Mapping):
        return True
    states = [
        state for files in reason.values() for state in (files.values() if isinstance(files, Mapping) else [files])
    ]
    return any(state not in ("deleted", "not in cache") for state in states)


def _dvc(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DVC_NO_ANALYTICS": "true"}
    command = [sys.executable, "-m", "dvc", *arguments]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)


def _check_places(path: Path, manifest: Mapping[str, Any], results: Results) -> None:
    """Refuse files that are none of the stage's outputs, nor records of its run."""
    for name in manifest["files"]:
        output = next((out for out in results.made if inside(name, (out,))), None)
        if output is None:
            if name != LOG and not inside(name, (CHECKPOINTS, JOURNALS)):
                raise BundleError(f"{path} holds {name}, which is no output of {results.contents.stage}")
        elif (output == name) != (results.made[output] == "file"):
            raise BundleError(f"{path}: {output} is both a file and a folder")
    missing = [out for out, kind in results.made.items() if kind == "file" and out not in manifest["files"]]
    if missing:
        raise BundleError(f"{path} lacks {missing[0]}")


def _failure(path: Path, results: Results, log: Path) -> str:
    how = "was stopped" if results.stopped else f"ended with exit code {results.exit_code}"
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    latest = [line.rpartition("\r")[2] for line in text.strip().replace("\r\n", "\n").splitlines()[-_LOG_LINES:]]
    before = f" {', '.join(results.done)} ended well and is recorded." if results.done else ""
    return (
        f"{path}: {results.failed} {how} on {results.host}.{before} Its tracked run and checkpoints are here: run it "
        f"here, or bundle it again, to go on from them. It said:\n" + "\n".join(latest)
    )


def replace(root: Path, source: Path, outputs: Sequence[str], aside: Path) -> None:
    """Move outputs from `source` into the repository, all or none: the earlier ones stay in `aside` until then.

    Folders that are missing in `source` are empty ones.

    Raises:
        FileWriteError: one cannot be moved; the earlier ones are in place again.
    """
    moved: list[str] = []
    kept: list[str] = []
    try:
        for output in outputs:
            new, old, place = source / output, aside / output, root / output
            if not new.exists():
                new.mkdir(parents=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_symlink() or place.exists():  # it may be a link into DVC's cache: it is moved, not written to
                old.parent.mkdir(parents=True, exist_ok=True)
                _move(place, old)
                kept.append(output)
            _move(new, place)
            moved.append(output)
    except BaseException as error:  # Ctrl-C, too: `aside` is about to be deleted
        for output in moved:
            remove(root / output)
        for output in kept:
            _move(aside / output, root / output)
        if not isinstance(error, OSError):
            raise
        raise FileWriteError(f"cannot write {root}: {error.strerror or error}. The files are as before.") from None


def _move(source: Path, target: Path) -> None:
    """Rename a file, a link or a folder; copied first where a folder of the repository is on another disk."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        near = target.with_name(f".{target.name}.part")
        try:
            shutil.move(source, near)
            near.rename(target)
        finally:
            remove(near)


def _take(folder: Path, root: Path, place: str) -> None:
    """Copy checkpoints or tracked runs into the repository. A journal is only ever replaced by a longer form of it, a
    checkpoint never by one of an earlier epoch.
    """
    for path in sorted((folder / place).rglob("*")):
        target = root / path.relative_to(folder)
        if not path.is_file() or (path.name == "events.jsonl" and not _continues(path, target)):
            continue
        if place == CHECKPOINTS and about_checkpoint(path).epoch < about_checkpoint(target).epoch:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)


def _continues(path: Path, earlier: Path) -> bool:
    """Whether a journal begins with all that an earlier one has."""
    return not earlier.exists() or path.read_bytes().startswith(earlier.read_bytes())
