"""The test error of a classifier on darker images, a study that the project does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from pipeline.settings import Name, Section

if TYPE_CHECKING:
    from pipeline.context import Context
    from pipeline.params import Params
    from pipeline.results.outcome import Outcome


class BrightnessParams(Section):
    """Errors on darker images."""

    run: Name = Field(description="a key of `runs`: a classifier")
    factors: list[float] = Field(min_length=1, description="by which pixels are multiplied")


SETTINGS = BrightnessParams


def check(params: Params, where: str, study: BrightnessParams) -> None:
    """ValueError if there is no such run."""
    params.run_of(f"{where}.run", study.run)


def measure(context: Context) -> Outcome:
    """Classify the test images, darkened."""
    import pandas as pd
    import torch

    from pipeline.classification.classifier import Classifier
    from pipeline.results.outcome import Outcome
    from pipeline.results.spread import nest, stack_replicas

    settings: BrightnessParams = context.settings
    run = context.params.runs[settings.run]
    images, labels = context.evaluated(run.dataset).part("test")
    pixels = torch.from_numpy(images).float() / 255
    tables = []
    for model in context.models(settings.run, Classifier):
        scores = [model.scores(factor * pixels) for factor in settings.factors]
        errors = [(each.argmax(-1) != torch.from_numpy(labels)).float().mean().item() for each in scores]
        tables.append(pd.DataFrame({"factor": settings.factors, "error": errors}))
    table = stack_replicas(tables)
    return Outcome("brightness", table, {"error": nest(table, ["factor"], "error")})
