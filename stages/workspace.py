"""Set-up and error handling for all stages: the repository's paths, checked parameters, a lock and a tracked run.

    with stage("train", item) as workspace:
        ...

After an error that a user can fix, a stage exits with one message and code 2 (bad parameters) or 1 (other errors).
"""

import errno
import logging
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil
from tqdm.contrib.logging import logging_redirect_tqdm

from pipeline.commits import git_state
from pipeline.context import Context
from pipeline.dependencies import Graph, Item
from pipeline.errors import UserError
from pipeline.files import md5, read_yaml
from pipeline.layout import CHECKPOINTS, Layout, find_root, model_folder
from pipeline.locks import single_instance
from pipeline.params import parse_params, read_params
from pipeline.results.outcome import Outcome, headlines, write_outcome
from pipeline.settings import flatten
from pipeline.systems import build_model
from stages import tracked

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)
POLL_SECONDS, GRACE_SECONDS = 0.5, 5.0
TERMINATED = 128 + signal.SIGTERM
_SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh"}


@dataclass
class Workspace(Layout):
    """An item that is running, with the paths of its profile.

    Args:
        settings: the part of the parameters that this item depends on, nested as in `params.yaml`.
        commit, dirty: the commit, and whether there are uncommitted changes (see `git_state`).
        context: the item's context, which a study gets as its argument (see `Context`).
    """

    settings: dict[str, Any]
    commit: str
    dirty: bool
    context: Context

    def __post_init__(self) -> None:
        super().__post_init__()
        self.params, self.run, self.entry = self.context.params, self.context.run, self.context.entry
        self._begun, self._headline = time.monotonic(), dict[str, float]()

    def provenance(self) -> dict[str, Any]:
        """The provenance of a result. It is stored with the result, in the list `provenance`."""
        return {
            "stage": self.entry.stage,
            "item": self.entry.name,
            "profile": self.profile,
            "commit": self.commit,
            "dirty": self.dirty,
            "params_hash": self.run.tags["params_hash"],
            "settings": self.settings,
            "device": self.device,
            "seconds": round(time.monotonic() - self._begun, 2),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "tracking_run": self.run.id,
            **self.context.provenance(),
        }

    def write(self, outcome: Outcome) -> None:
        """Write the item's result with its provenance, and log its numbers. Raises what `write_outcome` raises."""
        from pipeline.results.spread import flat

        name = f"{self.entry.stage}/{self.entry.name}"
        arrays = self.arrays_folder / name
        has_arrays = str(arrays.relative_to(self.root)) in self.entry.outs
        path = self.records_folder / f"{name}.json"
        write_outcome(path, arrays if has_arrays else None, outcome, self.provenance())
        if self.params.publish and self.dirty:
            print(f"{self.entry.label} is a draft, made from uncommitted changes. Commit them, and run it again.")
        self.run.log_metrics(flat(outcome.numbers), step=self.context.last_epoch)
        self._headline.update(flat(headlines(outcome.numbers, outcome.headline)))

    def conclude(self, **tags: str) -> None:
        """Log the device, a description and `tags` (an error, if any). Without an error, log a training's weights."""
        if not tags and self.entry.stage == "train":
            for path in sorted(model_folder(self.root, str(self.entry.name)).glob("*")):
                self.run.log_artifact(path, "model")
        note = tracked.run_note(self.entry.stage, self.entry.label, self.commit, self.dirty, self._headline)
        self.run.log_tags({"device": self.device, tracked.NOTE: note, **tags})
        if "torch" in sys.modules:  # a stage without torch must not set the group's device to the CPU
            self.run.log_tags({"device": self.device}, of_group=True)

    @property
    def device(self) -> str:
        """The device that this process has used so far: a GPU if it used one, else the CPU."""
        torch = sys.modules.get("torch")
        if torch is None:
            return f"CPU ({platform.processor() or platform.machine()})"
        from pipeline.compute import describe

        return describe(torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))


@contextmanager
def stage(name: str, item: str | None = None, root: Path | None = None) -> Iterator[Workspace]:
    """Check the parameters and the item. During the block, hold a lock, keep a tracked run, and watch `starters()`.

    Raises `SystemExit` with code 2 for invalid parameters or an unknown item, 1 for other errors that the user can fix,
    130 after Ctrl-C, and 143 after SIGTERM. Messages are printed to stderr.
    """
    logger = logging.getLogger("pipeline")
    logger.setLevel(logging.INFO)
    try:
        root = find_root() if root is None else root.resolve()
        home = Path(os.environ.get("DVC_ROOT") or root).resolve() if "DVC_STAGE" in os.environ else root
        values = read_params(root / "params.yaml")
        params = parse_params(values)
        graph = Graph.load(root, values)
        entry = graph.item(name, item)
        chain, dvc = starters()
        with logging_redirect_tqdm([logger]), single_instance(root, entry.label), exit_with(chain):
            commit, dirty = git_state(root)
            settings = graph.settings(name, item, params.model_dump(mode="json"))
            before = _recorded_by_dvc(root, entry, values)
            run = tracked.open_run(params.profile, settings, entry, home, commit, dirty, dvc)
            section = getattr(params, name, None)  # a dict if each item has its own entry
            context = Context(
                entry=entry,
                item=item or "",
                label=entry.label,
                settings=section[item] if isinstance(section, dict) else section,
                params=params,
                build_model=build_model,
                root=root,
                checkpoints=home / CHECKPOINTS,
                run=run,
                graph=graph,
            )
            workspace = Workspace(root, params.profile, settings, commit, dirty, context)
            try:
                yield workspace
                if _recorded_by_dvc(root, entry, read_yaml(root / "params.yaml")) != before:
                    what = f"parameters or code of {entry.label} changed while it ran, so its result is not recorded"
                    advice = "A training continues from its checkpoint only if you undo the change first."
                    raise UserError(f"{what}. Run it again. {advice}")
            except BaseException as error:
                killed = isinstance(error, (KeyboardInterrupt, SystemExit))
                workspace.conclude(error="stopped" if killed else f"{type(error).__name__}: {error}")
                run.finish("KILLED" if killed else "FAILED")
                raise
            workspace.conclude()
            run.finish("FINISHED")
    except UserError as error:
        _exit(str(error), error.exit_code)
    except KeyboardInterrupt:
        _exit("stopped by the user. Run a training again to continue from its last checkpoint", 130)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        _exit(f"{error.strerror}: {error.filename or root}", 1)
    except (MemoryError, RuntimeError) as error:
        of_gpu = type(error).__name__ == "OutOfMemoryError"  # on the CPU, torch raises RuntimeError
        if not (of_gpu or isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)):
            raise
        full = "the GPU's memory" if of_gpu else "memory"
        _exit(f"{full} is full: lower batch_size, or use smaller images", 1)


def _recorded_by_dvc(root: Path, entry: Item, values: Any) -> list[Any]:
    """An item's parameters, from `values` (all of params.yaml), and hashes of its code. DVC records both at the end."""
    flat = flatten(values) if isinstance(values, dict) else {}
    names = ("profile", *entry.params)
    chosen = {key: value for key, value in flat.items() if any(f"{key}.".startswith(f"{name}.") for name in names)}
    return [chosen, *(md5(root / dep) for dep in entry.deps if dep.startswith(("pipeline/", "stages/")))]


def _exit(message: str, code: int) -> NoReturn:
    """Print a message and exit. If DVC started the stage, also say how to restore the results that DVC has removed."""
    print(f"error: {message}", file=sys.stderr)
    if label := os.environ.get("DVC_STAGE"):
        how = f"`dvc checkout {label}` and `git checkout` of its files in reports/ restore them"
        print(f"DVC has removed earlier results of {label}, if there were any: {how}.", file=sys.stderr)
    raise SystemExit(code) from None


def starters() -> tuple[list[psutil.Process], psutil.Process | None]:
    """The processes that started this stage (parent first), and the process that identifies the reproduction.

    The list has `dvc`, and also `python -m pipeline repro` and `make` if they started `dvc`. It also has the shells
    between these processes and this stage. The reproduction is identified by `pipeline repro` if it is in the list,
    otherwise by `dvc`. Returns an empty list and None if DVC did not start this stage.
    """
    chain: list[psutil.Process] = []
    shells: list[psutil.Process] = []
    reproduction = None
    if "DVC_STAGE" not in os.environ:
        return chain, reproduction
    with suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = [Path(word).name.lstrip("-") for word in process.cmdline()[:4]]
            if words and words[0] in _SHELLS:
                shells.append(process)
                continue
            if "dvc" in words:
                reproduction = reproduction or process
            elif words[2:] == ["pipeline", "repro"]:
                reproduction = process
            elif words[:1] not in (["make"], ["gmake"]):
                break
            chain += [*shells, process]
            shells = []
    return chain, reproduction


@contextmanager
def exit_with(chain: list[psutil.Process]) -> Iterator[None]:
    """During the block, exit soon after any process of `chain` has ended. SIGTERM raises `SystemExit`.

    When a process of `chain` ends, a thread sends SIGTERM to this stage. If the stage still runs after `GRACE_SECONDS`,
    the thread ends it. It is not enough to watch the parent: if the reproduction is killed, a shell may be the parent,
    and continue to wait.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if not all(_is_alive(process) for process in chain):
                with suppress(OSError):  # printing fails if the process that has ended read our output
                    print("the process that started this stage has ended: stopping", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(GRACE_SECONDS)
                os._exit(TERMINATED)

    def exit_in_order(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, exit_in_order)
    if chain:
        threading.Thread(target=watch, name="ancestor-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        signal.signal(signal.SIGTERM, before)


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process is running. False for a zombie, and if another process now has the process's id."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
