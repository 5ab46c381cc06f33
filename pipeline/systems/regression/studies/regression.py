"""One study of capsule regression (document 002)."""

from dataclasses import replace
from importlib import import_module

from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.results.outcome import Outcome
from pipeline.shared_params import SharedParams
from pipeline.systems.regression.settings import RegressionSet, RegressionStudy

SETTINGS, SET = RegressionStudy, RegressionSet


def check(params: SharedParams, where: str, study: RegressionStudy) -> None:
    """Raise `ValueError` if the data set is unknown, is not grey, or has fewer singular vectors than `features`."""
    if study.dataset not in params.datasets:
        raise ValueError(f"{where}.dataset: '{study.dataset}' is not one of {sorted(params.datasets)}")
    channels, dataset = params.images_of(study.dataset).channels, params.datasets[study.dataset]
    if channels != 1:
        raise ValueError(
            f"{where}.dataset: images of {study.dataset} have {channels} channels: capsule regression takes 1"
        )
    most = min(dataset.canvas**2, dataset.train)
    if study.features > most:
        raise ValueError(
            f"{where}.features: must be at most {most}, the smaller of the numbers of pixels and training images of "
            f"{study.dataset} (found {study.features})"
        )


def measure(context: Context) -> Outcome:
    """Run the study that `context.settings` describes. Raises `UserError` if no model can be fit to the images."""
    from pipeline.compute import prepare
    from pipeline.systems.regression.model.fits import build_inputs

    study: RegressionStudy = context.settings
    dataset, device = context.evaluated(study.dataset), context.device
    prepare(device)
    inputs = context.once(
        ("inputs", study.dataset, study.features), lambda: build_inputs(dataset, study.features, device)
    )
    # This hash leaves out the code of other kinds of study. So checkpoints stay usable when that code is edited.
    code = context.own_code("pipeline/systems/regression/experiments", f"{study.study}.py")
    depends = {"data": context.sha256(study.dataset), "features": study.features, "device": device.type, "code": code}
    run = import_module(f"pipeline.systems.regression.experiments.{study.study}").run
    try:
        outcome: Outcome = run(replace(inputs, checkpoints=context.checkpoints, depends=depends), study)
    except ValueError as error:
        raise UserError(f"{context.item}: {error}") from None
    return outcome
