"""The local record of a tracked run: one JSON event per line, appended and never rewritten.

Events, all with `time` (milliseconds since 1970): `start` (id, experiment, its tags, name, params, tags, group),
`resume`, `params`, `metrics` (step, values), `tags`, `dataset` (name, label, sha256, context), `artifact` (file,
sha256, folder, of_run: the id of an earlier run that it belongs to), `model` (name, kind, files, card, metrics), `end`
(status). Parameters, metrics, tags and artifacts with `of_group` are those of the run that represents the group.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

_logger = logging.getLogger(__name__)

Event = dict[str, Any]

_FIELDS: dict[str, dict[str, type]] = {
    "start": {"id": str, "experiment": str, "name": str, "params": dict, "tags": dict},
    "resume": {},
    "params": {"params": dict},
    "metrics": {"step": int, "values": dict},
    "tags": {"tags": dict},
    "dataset": {"name": str, "label": str, "sha256": str},
    "artifact": {"file": str, "folder": str},
    "model": {"name": str, "kind": str, "files": list, "card": dict, "metrics": dict},
    "end": {"status": str},
}
_LARGEST = 2**63 - 1  # whole numbers that a store can hold
_warned: set[tuple[Path, int]] = set()  # odd lines that this process has warned of: journals and offsets


@dataclass(frozen=True)
class Group:
    """Runs that belong together, such as those of one reproduction, represented by a run of their own.

    Attributes:
        id: unique.
        name: for display.
        tags: of the run that represents them.
    """

    id: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one level of dotted names; lists and scalars stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def encode_number(value: float) -> float | str:
    """A float in valid JSON: `"nan"`, `"inf"` and `"-inf"` as text, which `float` reads back."""
    value = float(value)
    return value if math.isfinite(value) else repr(value)


class Journal:
    """The events of one run, in `<folder>/events.jsonl`.

    Attributes:
        id: the run's id.
        writer: lock of the process that writes the run, held while it writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.id = folder, folder.name
        self.path = folder / "events.jsonl"
        self.writer = FileLock(folder / "writer.lock", thread_local=False)

    def append(self, event: str, **fields: Any) -> None:
        """Append one event; readers see either the whole event or nothing.

        Raises:
            OSError: the line could not be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"event": event, "time": int(time.time() * 1000), **fields}) + "\n"
        with self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    line = "\n" + line  # a killed writer left half a line: end it, so that only that line is lost
            file.write(line.encode())

    def read(self, offset: int = 0) -> Iterator[tuple[Event, int]]:
        """The events from byte `offset` on, each with the offset of its end.

        Incomplete lines are skipped; JSON that is not an event is skipped with a warning, once in a process.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    offset += len(line)
                    try:
                        event = json.loads(line)
                    except ValueError:
                        continue
                    except RecursionError:  # nested thousands of levels deep
                        event = None
                    if _is_event(event) and _is_text(line, event):
                        yield event, offset
                    else:
                        self._warn(line, offset)
        except FileNotFoundError:
            return

    def _warn(self, line: bytes, end: int) -> None:
        if (self.path, end) in _warned:
            return
        _warned.add((self.path, end))
        with self.path.open("rb") as file:
            number = file.read(end).count(b"\n")
        text = line.decode(errors="replace").strip()
        _logger.warning("warning: %s, line %d: not an event, skipped: %.80s", self.path, number, text)

    def size(self) -> int:
        """Bytes written so far."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def is_written(self) -> bool:
        """Whether a process holds the writer's lock."""
        try:
            with self.writer.acquire(blocking=False):
                return False
        except TimeoutError:
            return True


def _is_event(value: Any) -> bool:
    """Whether a line has all fields of its kind of event, with values that a store can hold."""
    try:
        for number in [*value.get("values", {}).values(), *value.get("metrics", {}).values()]:
            float(number)
        fields = {"time": int, **_FIELDS[value["event"]]}
        return (
            all(isinstance(value[key], kind) for key, kind in fields.items())
            and all(-_LARGEST <= value[key] <= _LARGEST for key in ("time", "step") if key in fields)
            and all(isinstance(each["file"], str) for each in value.get("files", []))
            and isinstance(value.get("experiment_tags") or {}, dict)
            and isinstance(value.get("context", ""), str)
            and _is_id(value.get("id", ""))
            and _is_id(value.get("of_run") or "")
            and _is_group(value.get("group"))
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return False


def _is_group(group: Any) -> bool:
    return not group or (
        _is_id(group["id"]) and isinstance(group["name"], str) and isinstance(group.get("tags") or {}, dict)
    )


def _is_id(text: Any) -> bool:
    """Whether a text can be searched for: MLflow's queries have it in quotes."""
    return isinstance(text, str) and "'" not in text


def _is_text(line: bytes, event: Event) -> bool:
    """Whether the texts of an event can be written; half of a character that JSON spells in two halves cannot."""
    if b"\\ud" not in line.lower():
        return True
    try:
        json.dumps(event, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
