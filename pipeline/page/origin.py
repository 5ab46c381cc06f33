"""Where a number comes from, in one short line: items, data, date, commits, time and device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.results.provenance import Record, dataset_label, merged_provenance, unique

_FEW = 3
"""Items, or commits, that a line names; it counts the others."""
_SHORT_HASH = 7


@dataclass(frozen=True)
class Commit:
    """A commit by its short hash, and its page if the repository's address is known."""

    short: str
    url: str | None


@dataclass(frozen=True)
class Origin:
    """One line on where numbers come from.

    Attributes:
        items: such as "train/capsules-digits, evaluate/capsules-digits and 2 more".
        effort: duration and device.
        record: the rest, as names and texts: all items if the line leaves some out, tracked runs, parameters, epochs.
    """

    items: str
    dataset: str
    commits: list[Commit]
    more_commits: int
    effort: str
    record: list[tuple[str, str]]


def repository_url(root: Path) -> str | None:
    """The address in CITATION.cff (`repository-code`), if there is one."""
    try:
        content = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return None
    url = content.get("repository-code") if isinstance(content, dict) else None
    return url.rstrip("/") if isinstance(url, str) and url.startswith(("https://", "http://")) else None


def origin(merged: Mapping[str, Any], dataset: str = "", repository: str | None = None) -> Origin | None:
    """The origin in a provenance merged by `merged_provenance`; None if it has no items."""
    if not merged["items"]:
        return None
    found = commits(merged["commit"], repository)
    seconds, epochs = merged["seconds"], merged["epochs"]
    effort = [None if seconds is None else _duration(seconds), merged["device"]]
    texts = {
        "results": ", ".join(merged["items"]) if len(merged["items"]) > _FEW else "",
        "commits": (merged["commit"] or "") if len(found) > _FEW else "",
        "tracked as": ", ".join(merged["tracking_runs"]),
        "parameters": merged["params_hash"],
        "epochs": "" if epochs is None else f"{epochs:,.0f}",
    }
    return Origin(
        _few(merged["items"]),
        dataset,
        found[:_FEW],
        max(0, len(found) - _FEW),
        ", ".join(each for each in effort if each),
        [(name, text) for name, text in texts.items() if text],
    )


def origin_of(records: Sequence[Record], repository: str | None = None) -> Origin | None:
    """The origin of what several provenance records give."""
    return origin(merged_provenance(records), dataset_label(records), repository)


def commits(merged: str | None, repository: str | None) -> list[Commit]:
    """The commits that `merged_provenance` joins by commas, each once."""
    names = unique((merged or "").split(", ")) if merged else []
    return [_commit(name, repository) for name in names]


def _commit(name: str, repository: str | None) -> Commit:
    full, dash, dirty = name.partition("-")
    if not re.fullmatch("[0-9a-f]{7,64}", full):
        return Commit(name, None)
    return Commit(full[:_SHORT_HASH] + dash + dirty, f"{repository}/commit/{full}" if repository else None)


def _few(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_FEW])
    return shown if len(items) <= _FEW else f"{shown} and {len(items) - _FEW} more"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
