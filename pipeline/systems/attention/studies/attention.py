"""One study of top-down attention and its inversion (document 001)."""

from importlib import import_module

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.systems.attention.settings import AttentionSet, AttentionStudy

SETTINGS, SET = AttentionStudy, AttentionSet

DATA = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""Names of the data that studies generate, by kind of study. They are recorded in the provenance."""


def measure(context: Context) -> Outcome:
    """Run a study with the settings of an entry of `attention`. It reads no data set: scenes are generated."""
    import torch

    from pipeline.compute import prepare

    study: AttentionStudy = context.settings
    context.generates(DATA[study.study])
    prepare(torch.device("cpu"))  # SciPy computes the special functions, and all arrays are small
    outcome: Outcome = import_module(f"pipeline.systems.attention.experiments.{study.study}").run(study)
    return outcome
