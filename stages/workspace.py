"""The context of every stage: the repository's paths, checked parameters, a lock, a tracked run and error handling.

    with stage("train", item) as workspace:
        ...

Errors that a user can act on end a stage with one message and an exit code: 1, or 2 for bad parameters.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm.contrib.logging import logging_redirect_tqdm

from pipeline.commits import git_state
from pipeline.dependencies import Graph, Item
from pipeline.errors import ParamsError, UserError
from pipeline.layout import Layout, find_root
from pipeline.locks import lock_path, single_instance
from pipeline.params import Params, parse_params, read_params
from pipeline.studies.context import Context
from pipeline.tracking import TrackedRun
from stages import notes, tracked
from stages.guards import exit_with, starters
from stages.tracked import params_hash

if TYPE_CHECKING:
    from pipeline.results.outcome import Outcome, Places

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, kw_only=True)
class Workspace(Layout):
    """One stage running on one item.

    Args:
        entry: the item in `dvc.yaml`.
        settings: the part of the parameters that this item depends on, nested as in `params.yaml`.
        commit: Git's commit, or "unknown".
        dirty: whether there are uncommitted changes, except in files that stages write.
        context: what a study or a training is given.
    """

    entry: Item
    settings: dict[str, Any]
    commit: str
    dirty: bool
    context: Context
    begun: float = field(default_factory=time.monotonic)
    _headline: dict[str, float] = field(default_factory=dict)

    @property
    def params(self) -> Params:
        """All parameters."""
        return self.context.params

    @property
    def run(self) -> TrackedRun:
        """The tracked run of this stage."""
        return self.context.run

    @property
    def places(self) -> Places:
        """The paths of the parts of this item's result."""
        from pipeline.results.outcome import Places

        name = f"{self.entry.stage}/{self.entry.name}"
        arrays = self.arrays_folder / name
        return Places(
            record=self.records_folder / f"{name}.json",
            table=self.records_folder / f"{name}.csv",
            arrays=arrays if str(arrays.relative_to(self.root)) in self.entry.outs else None,
        )

    def provenance(self) -> dict[str, Any]:
        """The provenance of a result, stored with it (in a list under `provenance`)."""
        return {
            "stage": self.entry.stage,
            "item": self.entry.name,
            "profile": self.profile,
            "commit": self.commit,
            "dirty": self.dirty,
            "params_hash": params_hash(self.settings),
            "settings": self.settings,
            "device": self.device,
            "seconds": round(time.monotonic() - self.begun, 2),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "tracking_run": self.run.id,
            **self.context.provenance(),
        }

    def write(self, outcome: Outcome) -> None:
        """Write the stage's result with its provenance, and track the numbers.

        Raises `FileWriteError` and `NotFiniteError`, as `write_outcome`.
        """
        from pipeline.results.outcome import headlines, write_outcome
        from pipeline.results.spread import flat

        write_outcome(self.places, outcome, self.provenance())
        if self.params.publish and self.dirty:
            print(f"{self.entry.label} is a draft, made from uncommitted changes. Commit them, and run it again.")
        self.run.log_metrics(flat(outcome.numbers), step=self.context.last_epoch)
        self._headline.update(flat(headlines(outcome.numbers, outcome.headline)))

    def conclude(self, **tags: str) -> None:
        """Track what is known only now: the device, the description with the results, and a trained model."""
        if not tags and self.entry.stage == "train":
            tracked.log_model(self, self._headline)
        note = notes.run_note(self.entry.stage, self.entry.label, self.commit, self.dirty, self._headline)
        self.run.log_tags({"device": self.device, notes.NOTE: note, **tags})
        if "torch" in sys.modules:  # otherwise it says nothing of where the others ran
            self.run.log_tags({"device": self.device}, of_group=True)

    @property
    def device(self) -> str:
        """The device used so far by this process: a GPU once it was used, else the CPU."""
        torch = sys.modules.get("torch")
        if torch is None:
            return f"CPU ({platform.processor() or platform.machine()})"
        from pipeline.compute import describe

        return describe(torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))


@contextmanager
def stage(name: str, item: str | None = None, root: Path | None = None) -> Iterator[Workspace]:
    """Enter a stage: check parameters and item, then lock, track and watch the starting process until the block ends.

    Raises:
        SystemExit: with code 2 for invalid parameters or an unknown item, 1 for other errors that the user can fix,
            143 if terminated; the message is on stderr.
    """
    logger = logging.getLogger("pipeline")
    logger.setLevel(logging.INFO)
    try:
        root = find_root() if root is None else root.resolve()
        home = Path(os.environ.get("DVC_ROOT") or root).resolve() if "DVC_STAGE" in os.environ else root
        values = read_params(root / "params.yaml")
        params = parse_params(values)
        graph = Graph.load(root, values)
        known = graph.items.get(name, {})
        if known and item not in known:
            raise ParamsError(f"{name} has no '{item}'; params.yaml has: {', '.join(sorted(map(str, known)))}")
        entry = graph.item(name, item)
        chain, dvc = starters()
        with (
            logging_redirect_tqdm([logger]),
            single_instance(lock_path(root, entry.label), entry.label),
            exit_with(chain),
        ):
            commit, dirty = git_state(root)
            settings = graph.settings(name, item, params.model_dump(mode="json"))
            run = tracked.open_run(params.profile, settings, entry, home, commit, dirty, dvc)
            section = getattr(params, name, None)  # a mapping where every item has an entry
            context = Context(
                item=item or "",
                label=entry.label,
                settings=section[item] if isinstance(section, dict) else section,
                axes=settings.get("item", {}),
                params=params,
                root=root,
                home=home,
                run=run,
                graph=graph,
                code=entry.code,
            )
            workspace = Workspace(
                root=root,
                profile=params.profile,
                entry=entry,
                settings=settings,
                commit=commit,
                dirty=dirty,
                context=context,
            )
            try:
                yield workspace
            except (KeyboardInterrupt, SystemExit):
                workspace.conclude(error="stopped")
                run.finish("KILLED")
                raise
            except BaseException as error:
                workspace.conclude(error=f"{type(error).__name__}: {error}")
                run.finish("FAILED")
                raise
            workspace.conclude()
            run.finish("FINISHED")
    except UserError as error:
        _exit(str(error), error.exit_code)
    except KeyboardInterrupt:
        _exit("stopped by the user; a training that is run again continues from its last checkpoint", 130)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        _exit(f"{error.strerror}: {error.filename or root}. {_earlier_results()}", 1)
    except (MemoryError, RuntimeError) as error:
        full = _full_memory(error)
        if not full:
            raise
        _exit(f"{full} is full: lower batch_size, or use smaller images. {_earlier_results()}", 1)


def _full_memory(error: BaseException) -> str:
    """Which memory was too small, if an error says so; else empty. torch has no error of its own for the CPU."""
    if type(error).__name__ == "OutOfMemoryError":
        return "the GPU's memory"
    return "memory" if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error) else ""


def _earlier_results() -> str:
    """What happened to earlier results when a stage failed: DVC removes them before it starts a stage."""
    if "DVC_STAGE" in os.environ:
        return "DVC has removed earlier results: `dvc checkout` and `git checkout reports` restore them."
    return "Earlier results are untouched."


def _exit(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(code) from None
