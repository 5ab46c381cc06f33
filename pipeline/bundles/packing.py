"""Writing a bundle, and unpacking it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.bundles.archive import BundleError, ChangedError, check_name, extract, read_manifest, write
from pipeline.bundles.checkpoints import about_checkpoint
from pipeline.bundles.contents import Contents, item_of, stage_contents, trainings
from pipeline.layout import CHECKPOINTS, JOURNALS

if TYPE_CHECKING:
    from pipeline.bundles.packages import Platform
    from pipeline.dependencies import Graph

BUNDLE = "bundle"
RUN = "run.py"
ATTEMPTS = 3
WHEELS, KERNELS = "wheels", "kernels"


def pack(
    root: Path, stage: str | Sequence[str], path: Path, wheels: Platform | None = None, graph: Graph | None = None
) -> Contents:
    """Write a bundle of a stage, or of several that run one after another.

    Beside what `stage_contents` lists, it carries compiled kernels, and the checkpoint of a training of the stage that
    was interrupted.

    Args:
        path: the file; an earlier one is replaced.
        wheels: carry wheels of the packages that the stage imports, for such a machine.
        graph: the dependencies of all stages, where they were read already.

    Raises:
        BundleError: an input is missing, or wheels cannot be downloaded.
        FileWriteError: `path` cannot be written.
    """
    from pipeline.bundles.packages import packages_of
    from pipeline.bundles.packages import wheels as download
    from pipeline.dependencies import Graph

    graph = Graph.load(root) if graph is None else graph
    contents = stage_contents(root, stage, graph)
    files = {name: root / name for name in contents.files}
    packages = packages_of(root, _code_run(root, contents, graph))
    files[RUN] = root / "pipeline" / "bundles" / "start.py"
    files |= {f"{KERNELS}/{kernel.name}": kernel for kernel in _kernels()}
    files |= {name: root / name for name in unfinished(root, contents.stages)}
    about = {"contents": contents.to_json(), "key": contents.key, "packages": packages}
    with tempfile.TemporaryDirectory(prefix="wheels") as folder:
        if wheels is not None:
            found = download(list(packages.values()), wheels, Path(folder))
            files |= {f"{WHEELS}/{wheel.name}": wheel for wheel in found}
        for attempt in range(ATTEMPTS):
            try:
                write(path, BUNDLE, about, files)
                break
            except ChangedError:  # a checkpoint, if the stage still runs on a machine that cannot be reached
                if attempt == ATTEMPTS - 1:
                    raise
    return contents


def unpack(path: Path, folder: Path) -> Contents:
    """Unpack a bundle into a new or empty folder, all of it or nothing.

    Raises:
        BundleError: it is missing, damaged, cut short, unsafe or something else, or there is no room for it.
        FileWriteError: the folder cannot be written.
    """
    contents = contents_of(read_manifest(path, BUNDLE), str(path))
    extract(path, BUNDLE, folder)
    for each in contents.folders:
        (folder / each).mkdir(parents=True, exist_ok=True)
    return contents


def contents_of(manifest: dict[str, Any], name: str) -> Contents:
    """The contents that a manifest states; `name` is for messages.

    Raises:
        BundleError: they do not match the key, or the files that are there.
    """
    contents = Contents.from_json(manifest.get("contents"), name)
    for each in (*contents.folders, *contents.outputs):
        check_name(each)
    if contents.key != manifest.get("key"):
        raise BundleError(f"{name} is damaged: its contents do not match its key")
    if manifest["kind"] == BUNDLE:
        wrong = [
            file for file, sha256 in contents.files.items() if manifest["files"].get(file, {}).get("sha256") != sha256
        ]
        if wrong:
            raise BundleError(f"{name} is damaged: its contents name another {wrong[0]} than its list of files")
    return contents


def unfinished(root: Path, stages: Sequence[str]) -> list[str]:
    """Checkpoints of interrupted trainings of stages, with the journals of their tracked runs."""
    names = [re.escape("".join(c if c.isalnum() or c in "-._" else "-" for c in stage)) for stage in stages]
    of_stages = re.compile(rf"\d{{8}}-\d{{6}}-({'|'.join(names)})-[0-9a-f]{{6}}")
    found: list[str] = []
    for checkpoint in sorted((root / CHECKPOINTS).glob("*/checkpoint.safetensors")):
        run = about_checkpoint(checkpoint).tracked_run
        if of_stages.fullmatch(run) and not _has_finished(root / JOURNALS / run / "events.jsonl"):
            paths = (checkpoint, *records(root / JOURNALS / run))
            found += [path.relative_to(root).as_posix() for path in paths]
    return list(dict.fromkeys(found))


def _has_finished(journal: Path) -> bool:
    """Whether a tracked run came to its end: its checkpoint has nothing left to train."""
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
        return any(json.loads(line).get("status") == "FINISHED" for line in lines if '"FINISHED"' in line)
    except (OSError, ValueError, AttributeError):
        return False


def records(folder: Path) -> list[Path]:
    """The files of tracked runs below a folder, without what only concerns their delivery from this machine."""
    journals = [*folder.rglob("events.jsonl"), *folder.rglob("artifacts/*/*")]
    return sorted(path for path in journals if path.is_file())


def _code_run(root: Path, contents: Contents, graph: Graph) -> set[str]:
    """The code that the stages run through: their own, and that of the models whose weights they read."""
    found = set(contents.code)
    for stage in contents.stages:
        for place in (place for item in trainings(graph, item_of(graph, stage)) for place in item.code):
            path = root / place
            files = path.rglob("*.py") if path.is_dir() else [path]
            found |= {file.relative_to(root).as_posix() for file in files}
    return found


def _kernels() -> list[Path]:
    """Compiled kernels of this environment that belong to the sources as they are."""
    from pipeline.kernels import built

    return built()
