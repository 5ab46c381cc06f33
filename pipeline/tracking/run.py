"""One tracked run, to which a stage or a training loop logs."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.files import sha256
from pipeline.tracking.drainer import DrainerStarter
from pipeline.tracking.journal import Group, Journal, encode_number, flatten
from pipeline.tracking.store import Store

_logger = logging.getLogger(__name__)

Status = Literal["FINISHED", "FAILED", "KILLED"]


class TrackedRun:
    """A run's journal, which the drainer delivers to MLflow.

    Nothing is written before the first `log_…` call (or `finish`), so that a training which finds a checkpoint can
    continue the run that wrote it: see `resume`. Logging never raises: a full disk only causes a warning here; the
    stage reports it if results are lost.

    Args:
        folder: parent folder; the run is in `folder/<run id>`.
        experiment: MLflow's experiment.
        name: display name of the run.
        params: may be nested.
        tags: values are converted to text.
        group: the group this run belongs to, such as one reproduction.
        context: what the run uses data sets for: "training" or "evaluation".
        experiment_tags: of the experiment, such as its description.
        store: None: record locally only.
    """

    def __init__(
        self,
        folder: Path,
        *,
        experiment: str,
        name: str,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        group: Group | None = None,
        context: str = "training",
        experiment_tags: Mapping[str, str] | None = None,
        store: Store | None = None,
    ) -> None:
        self._folder = folder
        self._start = {
            "experiment": experiment,
            "experiment_tags": dict(experiment_tags or {}),
            "name": name,
            "params": flatten(params or {}),
            "tags": {key: str(value) for key, value in (tags or {}).items()},
            "group": group and asdict(group),
        }
        self._context = context
        self._begun = time.monotonic()
        self.started = False  # whether anything has been logged yet, or an earlier run is being continued
        self._finished = self._broken = False
        self._drainer = None if store is None else DrainerStarter(folder, store)
        self._logged: dict[str, int] = {}  # last step of each metric that an interrupted process had logged
        safe_name = "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
        run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{safe_name}-{secrets.token_hex(3)}"
        self._journal = Journal(folder / run_id)

    @property
    def id(self) -> str:
        """The run's id, which is also its folder's name."""
        return self._journal.id

    @property
    def path(self) -> Path:
        """The folder of this run's journal."""
        return self._journal.folder

    def resume(self, run_id: str) -> bool:
        """Continue the earlier run `run_id` instead of opening a new one; call it before anything is logged.

        Metrics of steps that the earlier process had already logged are not logged twice.

        Returns:
            False if there is nothing to continue: that run is finished, has another name or other parameters, its
            journal is gone, or another process still writes it. Then the new run is used.
        """
        if self.started:
            raise RuntimeError("call resume before anything is logged")
        journal = Journal(self._folder / run_id)
        if not run_id or Path(run_id).name != run_id or not journal.size():
            return False
        try:
            journal.writer.acquire(timeout=1.0)  # short: the drainer takes it only to check whether it is held
        except TimeoutError:
            return False
        events = [event for event, _ in journal.read()]
        same = all(self._is_same(event) for event in events if event["event"] == "start")
        if not same or any(event.get("status") == "FINISHED" for event in events):
            journal.writer.release()
            return False
        for event in events:
            for key in {} if event.get("of_group") else event.get("values", {}):
                self._logged[key] = max(self._logged.get(key, -1), event["step"])
        self._journal, self.started = journal, True
        self._write("resume", **_process())
        return True

    @property
    def in_group(self) -> bool:
        """Whether the run belongs to a group. If not, what is logged of the group is dropped."""
        return self._start["group"] is not None

    def log_metrics(self, values: Mapping[str, float], step: int, *, of_group: bool = False) -> None:
        """Log values of one step or epoch, in one line; they need not be finite."""
        if of_group:
            self._write_of_group(
                "metrics", step=step, values={key: encode_number(each) for key, each in values.items()}
            )
            return
        fresh = {key: encode_number(value) for key, value in values.items() if step > self._logged.get(key, -1)}
        if fresh:
            self._write("metrics", step=step, values=fresh)

    def log_group_params(self, params: Mapping[str, Any]) -> None:
        """Log parameters of the whole group, which may be nested. MLflow refuses others of the same name later."""
        self._write_of_group("params", params=flatten(params))

    def log_tags(self, tags: Mapping[str, Any], *, of_group: bool = False) -> None:
        """Log tags that become known later; they replace earlier ones of the same name."""
        write = self._write_of_group if of_group else self._write
        write("tags", tags={key: str(value) for key, value in tags.items()})

    def log_dataset(self, name: str, label: str, digest: str) -> None:
        """Log a data set that the run reads: its name, its display name and the SHA-256 of its file."""
        self._write("dataset", name=name, label=label, sha256=digest, context=self._context)

    def log_artifact(
        self, path: Path, folder: str = "", *, of_group: bool = False, of_runs: Sequence[str] | None = None
    ) -> None:
        """Log a finished file, kept in its present state (by a hard link if possible); `folder` is that in MLflow.

        Args:
            of_group: log it with the group in place of this run.
            of_runs: the ids of earlier runs of the same experiment, to log it with those in place of this run. Those
                that MLflow does not have are skipped.
        """
        kept = self._keep(path)
        if kept is None:
            return
        if of_group:
            self._write_of_group("artifact", folder=folder, **kept)
        elif of_runs is not None:
            for run in of_runs:
                self._write("artifact", folder=folder, of_run=run, **kept)
        else:
            self._write("artifact", folder=folder, **kept)

    def log_model(
        self, name: str, kind: str, files: Sequence[Path], card: Mapping[str, Any], metrics: Mapping[str, float]
    ) -> None:
        """Log a trained model.

        Args:
            kind: display name of its type.
            files: its weights and what describes them.
            card: what to know before loading it, stored beside the files.
            metrics: its final numbers.
        """
        kept = [each for path in files if (each := self._keep(path)) is not None]
        values = {key: encode_number(value) for key, value in metrics.items()}
        self._write("model", name=name, kind=kind, files=kept, card=dict(card), metrics=values)

    def finish(self, status: Status = "FINISHED") -> None:
        """End the run; the drainer delivers what MLflow does not have yet. A second call does nothing."""
        if not self._finished:
            self._finished = True
            self.log_tags({"wall_seconds": f"{time.monotonic() - self._begun:.1f}"})
            self._write("end", status=status)
            self._journal.writer.release()

    def _keep(self, path: Path) -> dict[str, str] | None:
        """Keep a file as it is now: its path in the run's folder and its SHA-256; None if that failed."""
        self._ensure_started()
        try:
            digest = sha256(path)
            kept = self.path / "artifacts" / digest[:12] / path.name
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(path, kept)
        except OSError as error:
            self._give_up(error)
            return None
        return {"file": str(kept.relative_to(self.path)), "sha256": digest}

    def _is_same(self, start: Mapping[str, Any]) -> bool:
        """Whether an earlier run's first event has this run's name and parameters."""
        return all(start.get(key) == json.loads(json.dumps(self._start[key])) for key in ("name", "params"))

    def _ensure_started(self) -> None:
        if self.started:
            return
        self.started = True
        try:
            self._journal.writer.acquire(blocking=False)
        except OSError as error:
            self._give_up(error)
        self._write("start", id=self.id, **_process(), **self._start)

    def _write_of_group(self, event: str, **fields: Any) -> None:
        if self.in_group:
            self._write(event, **fields, of_group=True)

    def _write(self, event: str, **fields: Any) -> None:
        self._ensure_started()
        if self._broken:
            return
        try:
            self._journal.append(event, **fields)
        except OSError as error:
            self._give_up(error)
            return
        if self._drainer is not None:
            self._drainer.ensure()
            self._drainer.pass_on_warnings()

    def _give_up(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            _logger.warning("warning: cannot record this run in %s: %s. The run goes on.", self.path, error.strerror)


@dataclass(frozen=True)
class Part:
    """One of several trainings in a tracked run: its metrics are logged under the part's name to keep them separate.

    Args:
        run: the run, which the caller opens and finishes.
        name: name of the part, such as "pixel_sd=0.1".
    """

    run: TrackedRun
    name: str

    @property
    def id(self) -> str:
        """The run's id, which checkpoints store."""
        return self.run.id

    def resume(self, run_id: str) -> bool:
        """As `TrackedRun.resume`, but False once any part has logged something."""
        return not self.run.started and self.run.resume(run_id)

    def log_dataset(self, name: str, label: str, digest: str) -> None:
        """As `TrackedRun.log_dataset`."""
        self.run.log_dataset(name, label, digest)

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """As `TrackedRun.log_metrics`, under the part's name."""
        self.run.log_metrics({f"{self.name}/{key}": value for key, value in values.items()}, step)


def _process() -> dict[str, Any]:
    """Where a run is written: the drainer measures this process."""
    return {"host": socket.gethostname(), "process": os.getpid()}


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        part = target.parent.with_suffix(".part")  # not beside it, where half a copy would count as a file of the run
        shutil.copyfile(source, part)
        part.replace(target)
