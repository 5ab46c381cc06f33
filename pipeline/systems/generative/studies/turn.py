"""Rotates a digit through 360 degrees to show its reconstruction from the encoder's output and its parts with outlines.

The page has a slider for the angle. The numbers summarise pixel errors at all angles (document 000, Figures 3 and 5).
"""

import numpy as np

from pipeline.context import Context
from pipeline.results.outcome import Outcome

DIGIT = 2
"""The class of the digit. The orientation of a 2 is easy to see."""


def measure(context: Context) -> Outcome:
    """Rotate the first test digit of class `DIGIT`, and encode it with all replicas of a run. The item is an entry of
    `optimise`, and the run is the one that this entry names. The arrays are from the first replica.
    """
    import pandas as pd

    from pipeline.results.spread import spread_each, stack_replicas
    from pipeline.systems.generative.evaluation.examples import turning
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    run = context.params.section("optimise")[context.item].run
    images, labels = context.evaluated(context.params.runs[run].dataset).part("test")
    image = images[int(np.argmax(labels == DIGIT))]
    found = [turning(model, image) for model in context.models(run, GenerativeModel)]
    tables = [
        pd.DataFrame({"angle": each["angles"], "pixel_error": each["pixel_errors"]}).assign(
            parts_on=(each["presences"].astype(float) > 0.5).sum(1)
        )
        for each in found
    ]
    errors = [table.set_index("angle")["pixel_error"] for table in tables]
    numbers = {"pixel_error": spread_each([{"upright": e[0.0], "mean": e.mean(), "worst": e.max()} for e in errors])}
    headline = tuple(f"pixel_error.{name}" for name in numbers["pixel_error"])
    return Outcome("turning", stack_replicas(tables), numbers, headline, found[0])
