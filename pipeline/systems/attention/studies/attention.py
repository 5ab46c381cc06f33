"""One study of top-down attention and its inversion, each a module here with `run(study, title)` (document 001)."""

from __future__ import annotations

from importlib import import_module

import torch

from pipeline.compute import prepare
from pipeline.results.outcome import Outcome
from pipeline.studies.context import Context
from pipeline.systems.attention.settings import AttentionStudy

DATA = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""What each kind of study generates, for its provenance."""


def measure(context: Context) -> Outcome:
    """Run a study with the settings of an entry of `attention`. It needs no data: scenes are generated."""
    study: AttentionStudy = context.settings
    context.generates(DATA[study.study])
    prepare(torch.device("cpu"))  # SciPy computes the special functions, and all arrays are small
    return run_study(study, context.label)


def run_study(study: AttentionStudy, title: str) -> Outcome:
    """Run a study with its settings; only its own module is imported.

    Args:
        title: shown next to the progress bar.
    """
    outcome: Outcome = import_module(f"{__package__}.{study.study}").run(study, title)
    return outcome
