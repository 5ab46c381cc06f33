"""Errors of two networks on novel viewpoints, at equal errors on familiar viewpoints (document 004, Table 2)."""

from typing import Literal

from pydantic import Field

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams


class ViewpointParams(Section):
    """Errors on novel viewpoints at equal errors on familiar viewpoints: document 004, section 5.1, Table 2."""

    axis: Literal["azimuth", "elevation"] = Field(description="the angle that separates familiar and novel viewpoints")
    dataset: Name = Field(description="a key of `datasets` whose viewpoints are known")
    capsules: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    cnn: Name = Field(description="a key of `runs` whose variant is cnn")
    epochs: int = Field(ge=1, le=10_000, description="number of passes over the familiar training images")
    replicas: int = Field(ge=1, le=1000, description="number of replicas of each network")


SETTINGS = ViewpointParams


def check(params: SharedParams, where: str, study: ViewpointParams) -> None:
    """Raise `ValueError` for an unknown run, data set or factor, a wrong system, or a run unfit for the images."""
    capsules = params.run_of(f"{where}.capsules", study.capsules, "matrix_capsules")
    cnn = params.run_of(f"{where}.cnn", study.cnn, "cnn")
    if study.dataset not in params.datasets:
        raise ValueError(f"{where}.dataset: '{study.dataset}' is not one of {sorted(params.datasets)}")
    params.check_factor(f"{where}.axis", study.axis, study.dataset)
    params.check_fits(f"{where}.capsules", capsules, study.dataset)
    params.check_fits(f"{where}.cnn", cnn, study.dataset)


def measure(context: Context) -> Outcome:
    """Train two networks on familiar viewpoints. At equal errors on these, compare their errors on novel viewpoints."""
    from pipeline.classification.viewpoint_matching import errors, familiar_views, outcome, viewed

    settings: ViewpointParams = context.settings
    dataset, watched = familiar_views(context.dataset(settings.dataset), settings.axis)
    curves = {}
    for network, name in (("capsules", settings.capsules), ("cnn", settings.cnn)):
        run = viewed(context.params.runs[name], settings.dataset, settings.epochs, settings.replicas)
        trained, _ = context.train(network, run, dataset, watched=watched)
        curves[network] = errors(trained.history)
    return outcome(**curves, images={name: len(labels) for name, (_, labels) in watched.items()})
