"""The repository as DVC sees it, from the head's process: the stages and what they need, whether a stage is out of
date, and the recording of its outputs. Nothing else runs DVC.

One process that stays loaded does this for all stages: a `dvc` of its own for each would read dvc.yaml again, which
takes seconds.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

LOCK_SECONDS = 60.0  # how long another `dvc` may hold DVC's lock
HERE = frozenset({"download", "own_images", "figures", "tables"})
"""Stages that run in the repository itself: they use the network or files outside, or take seconds."""


class RepositoryError(UserError):
    """DVC cannot read or change the repository."""


class ChangedError(UserError):
    """What a stage depends on has changed since the stage was dispatched: its outputs belong to the former state."""


class State(enum.Enum):
    """Whether a stage has to run, once all that it needs is recorded."""

    CURRENT = "up to date"
    RESTORED = "restored from the run cache"
    STALE = "out of date"


class Repository:
    """The stages of a repository. For one thread.

    Args:
        root: its folder.

    Raises:
        RepositoryError: DVC cannot read it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._taken: dict[str, dict[str, Any]] = {}  # what stages depended on when they were found out of date
        self._load()
        self._listed = self._lock_entries()

    def _load(self) -> None:
        from dvc.repo import Repo
        from dvc.repo.reproduce import get_active_graph

        logging.getLogger("dvc").setLevel(logging.ERROR)  # its import sets another
        with _dvc_errors():
            self._repo = Repo(str(self.root))
            self._graph = get_active_graph(self._repo.index.graph)
            self._stages = {stage.addressing: stage for stage in self._graph}
        files = {stage.path for stage in self._stages.values()}
        files |= {dep.fs_path for stage in self._stages.values() for dep in stage.deps if hasattr(dep, "params")}
        self._definitions = {path: _signature(path) for path in files}

    def close(self) -> None:
        """Close DVC's databases."""
        self._repo.close()

    def plan(self, targets: Iterable[str] = ()) -> dict[str, frozenset[str]]:
        """The stages behind the targets, in DVC's own order, each with the stages that it needs.

        Args:
            targets: names of stages or outputs, as for `dvc repro`; all of dvc.yaml if there are none.
        """
        from dvc.repo.reproduce import collect_stages, plan_repro

        with _dvc_errors():
            chosen = collect_stages(self._repo, list(targets) or ["dvc.yaml"])
            steps = plan_repro(self._graph, [self._stages[stage.addressing] for stage in chosen])
        return {
            stage.addressing: frozenset(need.addressing for need in self._graph.successors(stage)) for stage in steps
        }

    def decide(self, name: str) -> State:
        """Whether a stage has to run. Its outputs are put in place if the run cache has them.

        All that it needs must be recorded. A frozen stage and one without a command only have their outputs checked.
        """
        from dvc.stage.cache import RunCacheNotFoundError
        from dvc_data.hashfile.hash_info import HashInfo

        stage = self._stage(name)
        with self._locked():
            if stage.frozen or not stage.cmd or stage.is_import:
                if stage.reproduce():
                    stage.dump(update_pipeline=False)
                return State.CURRENT
            if not stage.changed():
                return State.CURRENT
            if stage.changed_stage() or not stage.deps_cached():
                for out in stage.outs:  # or DVC would take the outputs of dvc.lock, which belong to former dependencies
                    out.hash_info = HashInfo()
            stage.save_deps()
            self._taken[name] = _dependencies(stage)
            try:
                self._repo.stage_cache.restore(stage, dry=True)
            except RunCacheNotFoundError:
                return State.STALE
            stage.run()
            stage.dump(update_pipeline=False)
            return State.RESTORED

    def runs_here(self, name: str) -> bool:
        """Whether a stage must run in the repository itself.

        So do stages that keep their former outputs (`persist`), or that use something outside of the repository.
        """
        stage = self._stage(name)
        outside = any(dep.protocol != "local" or not dep.is_in_repo for dep in stage.deps)
        outside = outside or any(out.protocol != "local" or not out.is_in_repo for out in stage.outs)
        return name.partition("@")[0] in HERE or outside or any(out.persist for out in stage.outs)

    def begin_here(self, name: str) -> tuple[list[str], Path, dict[str, str]]:
        """Remove the outputs of a stage, as DVC does before it runs one.

        Returns:
            Its commands, one after another, their folder, and the variables that DVC sets for them.
        """
        stage = self._stage(name)
        with self._locked():
            stage.remove_outs(ignore_remove=False, force=False)
        commands = stage.cmd if isinstance(stage.cmd, list) else stage.cmd.splitlines()
        return commands, Path(stage.wdir), {"DVC_ROOT": str(self.root), "DVC_STAGE": name}

    def record(self, name: str) -> None:
        """Record the outputs of a stage that lie in place, in dvc.lock, the cache and the run cache: `dvc commit -f`.

        Raises:
            ChangedError: what it depends on is no longer what `decide` saw.
        """
        stage = self._stage(name)
        with self._locked():
            stage.save_deps()
            now, before = _dependencies(stage), self._taken[name]
            changed = sorted(each for each in now.keys() | before.keys() if now.get(each) != before.get(each))
            if changed:
                raise ChangedError(f"{name}: {', '.join(changed)} changed while it ran: its result is not recorded")
            stage.save()
            stage.commit()
            stage.dump(update_pipeline=False)

    def _lock_entries(self) -> frozenset[str]:
        from dvc.utils.serialize import load_yaml

        path = self.root / "dvc.lock"
        with _dvc_errors():
            return frozenset(load_yaml(str(path)).get("stages", {}) if path.exists() else {})

    def sort_lock(self, order: Iterable[str]) -> None:
        """Put the entries of dvc.lock that were added out of DVC's order into it, so that the file is the same
        whichever stage ended first. Entries that were there before stay where they are.
        """
        from dvc.utils.serialize import dump_yaml, load_yaml

        path = self.root / "dvc.lock"
        if not path.exists():
            return
        with self._locked():
            content = load_yaml(str(path))
            stages = content["stages"]
            added = [name for name in stages if name not in self._listed]
            ordered = [name for name in order if name in added]
            kept = [name for name in stages if name not in ordered]
            if list(stages) != [*kept, *ordered]:
                content["stages"] = {name: stages[name] for name in [*kept, *ordered]}
                dump_yaml(str(path), content)

    def _stage(self, name: str) -> Any:
        """A stage as dvc.yaml and the parameters have it now."""
        if any(_signature(path) != before for path, before in self._definitions.items()):
            self.close()
            self._load()
        try:
            return self._stages[name]
        except KeyError:
            raise ChangedError(f"{name}: dvc.yaml no longer has it") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """DVC's lock, which another `dvc` may hold for a while, and its care for .gitignore."""
        from dvc.lock import LockError

        until = time.monotonic() + LOCK_SECONDS
        with _dvc_errors():
            while True:
                try:
                    self._repo.lock.lock()
                    break
                except LockError:
                    if time.monotonic() > until:
                        raise
            try:
                with self._repo.scm_context(quiet=True):
                    yield
            finally:
                self._repo.lock.unlock()


@contextmanager
def _dvc_errors() -> Iterator[None]:
    from dvc.exceptions import DvcException

    try:
        yield
    except DvcException as error:
        raise RepositoryError(f"DVC: {error}") from error


def _dependencies(stage: Any) -> dict[str, Any]:
    """Hashes of what a stage depends on, as saved last (of parameters their values), and its command."""
    return {"its command": stage.cmd} | {str(dep): getattr(dep.hash_info, "value", None) for dep in stage.deps}


def _signature(path: str) -> tuple[int, int] | None:
    """What tells whether a file was edited."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size
