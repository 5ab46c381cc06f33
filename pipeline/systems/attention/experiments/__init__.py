"""One module for each kind of study of top-down attention, each with `run(study, title)`."""

from __future__ import annotations

from importlib import import_module

from pipeline.results.outcome import Outcome
from pipeline.systems.attention.settings import AttentionStudy


def run_study(study: AttentionStudy, title: str) -> Outcome:
    """Run a study with its settings; only its own module is imported.

    Args:
        title: shown next to the progress bar.
    """
    outcome: Outcome = import_module(f"{__name__}.{study.study}").run(study, title)
    return outcome
