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
    epochs: int = Field(ge=1, le=10_000, description="further epochs of training the encoder with Gaussian poses")
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
    """Train encoders with Gaussian poses from the trained run of an entry of `posterior`, and from scratch."""
    from pipeline.learning.runs import of_kind
    from pipeline.results.spread import stack_replicas
    from pipeline.systems.generative.experiments import posteriors
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    settings: PosteriorParams = context.settings
    run, device = context.params.runs[settings.run], context.device
    assert isinstance(run, GenerativeRun)  # params.yaml was checked
    dataset = context.dataset(run.dataset)
    delta = context.models(settings.run, GenerativeModel, settings.replicas)
    sds = [posteriors.choose_sds(model, dataset.part("validation")[0], settings, device) for model in delta]
    begin = [posteriors.with_gaussian_poses(model, *sd) for model, sd in zip(delta, sds, strict=True)]
    further = context.train(
        "refined",
        posteriors.refined(run, settings),
        start=[dict(model.named_parameters()) for model in begin],
        frozen=begin[0].generative_names(),
    )
    anew = context.train("scratch", posteriors.scratch(run, settings))
    models = {
        "delta": begin,
        "refined": of_kind(GenerativeModel, further.models),
        "scratch": of_kind(GenerativeModel, anew.models),
    }
    tables = {
        guide: stack_replicas(
            [posteriors.measure_guide(model, dataset, settings, context.params.evaluate, device) for model in each]
        )
        for guide, each in models.items()
    }
    return posteriors.outcome(tables, sds)
