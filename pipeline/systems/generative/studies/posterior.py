"""Train encoders with Gaussian poses, starting from a trained run and from scratch (document 000, section 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pipeline.settings import Name, Section, Seed
from pipeline.systems.generative.settings import GenerativeRun

if TYPE_CHECKING:
    from pipeline.params import Params
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context


class PosteriorParams(Section):
    """One study of the full variational posterior over poses, document 000, section 2.3."""

    run: Name = Field(description="a key of `runs` whose variant is generative, with delta poses")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    epochs: int = Field(
        ge=1, le=10_000, description="further epochs of training the encoder, with Gaussian poses and with deltas"
    )
    images: int = Field(ge=1, le=10_000_000, description="test images for measuring bounds (the first ones)")
    samples: int = Field(ge=1, le=100_000, description="number K of samples in each image's bounds")
    sd_grid: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        min_length=1, description="sds of parts and of objects to try around delta poses; chosen on validation images"
    )
    grid_samples: int = Field(ge=1, le=10_000, description="samples per validation image for each pair of sds")
    seed: Seed = Field(description="seed of the samples")


SETTINGS = PosteriorParams


def check(params: Params, where: str, study: PosteriorParams) -> None:
    """ValueError if the run is not one with delta poses, or has too few replicas."""
    run = params.runs.get(study.run)
    if not isinstance(run, GenerativeRun) or run.model.pose_posterior != "delta":
        raise ValueError(f"{where}.run: '{study.run}' is not a generative run with delta poses")
    if study.replicas > run.replicas:
        raise ValueError(f"{where}.replicas: '{study.run}' has {run.replicas}")


def measure(context: Context) -> Outcome:
    """Train encoders further from the trained run of an entry of `posterior`, and a model from scratch."""
    from pipeline.systems.generative.experiments import posteriors

    return posteriors.measure(context)
