"""One digit turned through 360 degrees, encoded by a trained run at each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context


def measure(context: Context) -> Outcome:
    """Turn a digit for the trained run of an entry of `optimise`."""
    from pipeline.systems.generative.experiments.turning import outcome
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    run = context.params.studies("optimise")[context.item].run
    dataset = context.evaluated(context.params.runs[run].dataset)
    return outcome(context.models(run, GenerativeModel), dataset, context.device)
