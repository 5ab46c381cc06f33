"""Publishes the recorded outputs of the current profile, with a model card for each trained run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.learning.runs import SUMMARY
from pipeline.page.scorecard import Row
from pipeline.profiles import LOCK, Profiles
from pipeline.publishing.cards import card
from pipeline.publishing.selection import REMOTE, Output, PublishingError, Selection, outputs, select, unused
from pipeline.publishing.state import profile_state
from pipeline.results.reading import Results

MODELS = "models/"


def publish(root: Path) -> Selection:
    """Copy what is recorded of the current profile to the DVC remote `published`; write the cards and the list.

    What no profile's `dvc.lock` names any more is removed from the remote.

    Raises:
        PublishingError: the profile is not for publication, it is too large, or DVC cannot copy it.
    """
    profile = profile_state(root, root / "params.yaml")
    params = profile.params
    if not params.publish:
        raise PublishingError(f"profile {params.profile} is not for publication: set `publish: true` in params.yaml")
    recorded = {each.label for each in profile.items if each.state == "recorded"}
    selection = select(root, outputs(root / LOCK), recorded)
    _push(root, selection.chosen)
    locked = outputs(root / LOCK)
    others = [
        output
        for other in Profiles(root).all()
        if other.name != params.profile
        for output in outputs(root / "profiles" / other.name / LOCK)
    ]
    for file in unused(root / REMOTE, [*locked, *others]):
        file.unlink()
    cards = _write_cards(root, profile.results, params.profile, selection.chosen, [*locked, *others])
    write_text(root / REMOTE / "README.md", "\n".join(_overview(params.profile, selection, cards)) + "\n")
    return selection


def _push(root: Path, chosen: Sequence[Output]) -> None:
    """Copy outputs from DVC's cache to the remote."""
    if not chosen:
        return
    command = [sys.executable, "-m", "dvc", "push", "-q", "-r", REMOTE, *(output.path for output in chosen)]
    environment = {**os.environ, "DVC_NO_ANALYTICS": "true"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PublishingError(f"DVC cannot copy the outputs to {REMOTE}/: {(done.stderr or done.stdout).strip()}")


def _write_cards(
    root: Path, results: Results, profile: str, chosen: Sequence[Output], locked: Sequence[Output]
) -> list[str]:
    """Write the card of each published run, and remove those of runs that are in no profile's `dvc.lock`. Returns the
    runs that have a card.
    """
    folder = root / REMOTE / "cards"
    rows = _rows(Layout(root, profile).scorecard_path)
    kept = {f"{output.path.removeprefix(MODELS)}.md" for output in locked if output.path.startswith(MODELS)}
    for output in chosen:
        run = output.path.removeprefix(MODELS)
        summary, trained = root / output.path / SUMMARY, results.numbers("train", run)
        if output.path.startswith(MODELS) and trained is not None:
            if not summary.exists():  # published before, from another machine
                continue
            of_run = [row for row in rows if f"train/{run}" in row["provenance"].get("items", [])]
            about = _read(summary)
            text = card(about, trained, results.numbers("evaluate", run), of_run, output.size)
            write_text(folder / f"{run}.md", text)
    for path in folder.glob("*.md"):
        if path.name not in kept:
            path.unlink()
    return sorted(path.stem for path in folder.glob("*.md"))


def _rows(path: Path) -> list[Row]:
    rows: list[Row] = _read(path) if path.exists() else []
    return rows


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PublishingError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise PublishingError(
            f"{path} is corrupt: {error}. Get it back with `git checkout` or `dvc checkout`."
        ) from None


def _overview(profile: str, selection: Selection, cards: Sequence[str]) -> Iterator[str]:
    yield "# Published weights and arrays"
    yield ""
    yield f"A DVC remote with what the profile {profile} recorded; `python -m pipeline publish` writes it. To get it:"
    yield ""
    yield f"    python -m pipeline profile switch {profile}"
    yield f"    dvc pull --allow-missing -r {REMOTE}"
    yield ""
    yield "| trained run | MB |"
    yield "| --- | --- |"
    models = [output for output in selection.chosen if output.path.startswith(MODELS)]
    for output in models:
        run = output.path.removeprefix(MODELS)
        yield f"| [{run}](cards/{run}.md) | {output.size / 1e6:.2f} |"
    listed = {output.path.removeprefix(MODELS) for output in models}
    if elsewhere := [run for run in cards if run not in listed]:
        yield ""
        yield f"Of other profiles: {', '.join(f'[{run}](cards/{run}.md)' for run in elsewhere)}."
    yield ""
    arrays = [output for output in selection.chosen if output not in models]
    yield f"And the arrays of {len(arrays)} results ({sum(output.size for output in arrays) / 1e6:.1f} MB)."
    if selection.left_out:
        yield ""
        yield "Not published:"
        yield ""
        yield from (f"- {path}: {why}" for path, why in selection.left_out.items())
