"""The local truth of a tracked run: one JSON event per line, appended and never rewritten.

Events, all with `time` (milliseconds since 1970): `start` (id, experiment, name, params, tags, group), `resume`,
`metrics` (step, values), `tags`, `dataset` (name, label, sha256), `artifact` (file, sha256, folder), `end` (status).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs that belong together, such as those of one reproduction: `id` is unique, `name` is for people."""

    id: str
    name: str


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
    """A float as JSON allows it: `"nan"`, `"inf"` and `"-inf"` as text, which `float` reads back."""
    value = float(value)
    return value if math.isfinite(value) else repr(value)


class Journal:
    """The events of one run, in `<folder>/events.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "events.jsonl"

    def append(self, event: str, **fields: Any) -> None:
        """Add one event, whole or not at all as far as readers are concerned.

        Raises:
            OSError: the line could not be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"event": event, "time": int(time.time() * 1000), **fields}) + "\n"
        with self.path.open("ab") as file:
            if file.tell() and not self._ends_with_newline():
                line = "\n" + line  # a killed writer left half a line: close it, so that only that line is lost
            file.write(line.encode())

    def read(self, offset: int = 0) -> Iterator[tuple[Event, int]]:
        """The events from byte `offset` on, each with the offset behind it. Half and broken lines are passed over."""
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
                    yield event, offset
        except FileNotFoundError:
            return

    def size(self) -> int:
        """Bytes written so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) == b"\n"
