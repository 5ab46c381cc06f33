"""One study of top-down attention and its inversion (document 001)."""

from importlib import import_module

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.systems.attention.settings import AttentionSet, AttentionStudy

SETTINGS, SET = AttentionStudy, AttentionSet

DATA = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""Names of the data that studies generate, by kind of study. They are recorded in the provenance."""


def measure(context: Context) -> Outcome:
    """Run the study that an entry of `attention` describes. The study generates its data, and reads no data set."""
    import torch

    from pipeline.compute import prepare

    study: AttentionStudy = context.settings
    context.generates(DATA[study.study])
    prepare(torch.device("cpu"))  # a GPU would not help: SciPy computes on the CPU, and arrays are small
    outcome: Outcome = import_module(f"pipeline.systems.attention.experiments.{study.study}").run(study)
    return outcome
