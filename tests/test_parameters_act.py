"""Every parameter of a model, its training and its augmentation changes what a run learns.

A parameter that another one, or a later step, undoes would be set, recorded and compared for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ValidationError
from records import changed
from small import BAYES as SMALL_BAYES
from small import SCAE_SIZE, SIZE, small_run, squares

from pipeline.learning.train import Parameters, Task, train
from pipeline.systems import MODELS, Run, build_model
from pipeline.systems.matrix_capsules.settings import BayesParams

Changes = dict[str, dict[str, Any]]

BAYES: Changes = {"model": {"activation": "bayes", "saving": None}}
CONTEXT: dict[str, Changes] = {
    "augmentation.whole_pixels": {"augmentation": {"shift": 2.0}},
    "augmentation.gain": {"model": {"views": 2}},
    "augmentation.offset": {"model": {"views": 2}},
    "generative.model.temperature_epochs": {"model": {"final_temperature": 0.4}},
    "generative.model.pose_posterior_sd_start": {"model": {"pose_posterior": "gaussian"}},
    "generative.model.early_epochs": {"training": {"epochs": 4}},
    "generative.model.ramp_epochs": {"training": {"epochs": 4}, "model": {"early_epochs": 1}},
    "capsnet.model.middle_size": {"model": {"middle": 2}},
    "capsnet.model.absent_weight": {"model": {"absent_margin": 0.001}},
    "matrix_capsules.model.early_iterations": {"model": {"early_epochs": 1.0}},
    **{f"bayes.{name}": BAYES for name in BayesParams.model_fields},
    "bayes.precisions": {"model": {**BAYES["model"], "bayes": {**SMALL_BAYES, "nu0": 5.0}}},
    "matrix_capsules.model.batch_norm": BAYES,
}
"""By the end of a parameter's path, the settings under which it acts, where the small run's are others."""
OTHERS: dict[str, Any] = {
    "training.gradient_clip": 0.001,
    "generative.model.seeding": {"images": 20, "iterations": 2, "teaching_epochs": 1},
    "capsnet.model.absent_margin": 0.001,
    "cnn.model.kernel": 5,
}
"""By the end of a parameter's path, another value of it, where the first that is valid would not do."""


def alternatives(annotation: Any, value: Any) -> list[Any]:
    """Other values of a parameter, of which some may not be valid."""
    if isinstance(value, bool):
        return [not value]
    if get_origin(annotation) is Literal:
        return [other for other in get_args(annotation) if other != value]
    if isinstance(value, int):
        return [value + 1, value * 2, value - 1]
    if isinstance(value, float):
        return [value * 1.5 + 0.1, value * 0.5, value + 0.01]
    if isinstance(value, list):
        return [[each + 1 for each in value], [*value, value[-1]]]
    raise TypeError(f"{annotation}, now {value!r}, needs an entry in OTHERS")


def places(settings: BaseModel, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and annotation of every parameter, of sections inside, too."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from places(value, (*prefix, name))
        else:
            yield (*prefix, name), field.annotation


SECTIONS = {"vae": ("augmentation", "training"), "matrix_capsules": ("augmentation",), "cnn": ("augmentation",)}
"""Of runs whose training or augmentation is tested: one loop and one augmentation serve all variants, but those that
standardise images may undo changes of their light."""
PARAMETERS = [
    (variant, path, annotation)
    for variant in MODELS
    for section in (*SECTIONS.get(variant, ()), "model")
    for path, annotation in places(getattr(small_run(variant), section), (section,))
    if path != ("training", "patience")  # it ends a training that others would go on with: tests of the loop
]


def run_with(variant: str, changes: Changes) -> Run:
    """The small run of one seed with these changes of its sections."""
    values = small_run(variant, replicas=1).model_dump()
    return small_run(**{**values, **{section: {**values[section], **changed} for section, changed in changes.items()}})


def learned(run: Run) -> Parameters:
    """The parameters of a short training, by name."""
    images = squares(size=SCAE_SIZE if run.variant == "scae" else SIZE)

    def part(name: str) -> tuple[np.ndarray, np.ndarray]:
        pixels, labels = images.part(name)
        return np.concatenate([pixels, pixels[::-1]], 1)[:, : run.channels], labels

    torch.manual_seed(0)
    size = images.images.shape[-1]
    task = Task(lambda: build_model(run, size), run.training, run.augmentation, part("train"), part("validation"))
    return train(task, run.seeds, torch.device("cpu")).parameters[0]


@cache
def unchanged(variant: str, context: str | None) -> Parameters:
    return learned(run_with(variant, CONTEXT[context] if context else {}))


def differ(first: Parameters, second: Parameters) -> bool:
    """Whether two models have parameters of other names or shapes, or whose values differ by more than rounding."""
    if {name: value.shape for name, value in first.items()} != {name: value.shape for name, value in second.items()}:
        return True
    return any(not torch.allclose(first[name], second[name], rtol=1e-5, atol=1e-7) for name in first)


def named(table: dict[str, Any], variant: str, path: tuple[str, ...]) -> str | None:
    """The key of a table that stands for a parameter: the end of its path, with the variant before it or not."""
    whole = (variant, *path)
    return next((key for i in range(len(whole)) if (key := ".".join(whole[i:])) in table), None)


@pytest.mark.parametrize(
    ("variant", "path", "annotation"), PARAMETERS, ids=[".".join((variant, *path)) for variant, path, _ in PARAMETERS]
)
def test_every_parameter_changes_what_is_learned(variant: str, path: tuple[str, ...], annotation: Any) -> None:
    context, other = named(CONTEXT, variant, path), named(OTHERS, variant, path)
    run = run_with(variant, CONTEXT[context] if context else {})
    values = run.model_dump()
    now: Any = run
    for key in path:  # not in `values`, which may leave out a setting at its default
        now = getattr(now, key)
    for value in [OTHERS[other]] if other else alternatives(annotation, now):
        try:
            other_run = type(run).model_validate(changed(values, "/".join(path), value))
        except ValidationError:
            continue
        assert differ(unchanged(variant, context), learned(other_run)), f"{now!r} and {value!r} are the same"
        return
    pytest.fail(f"no other value than {now!r} is valid")


MATRIX = {
    "competition": "position",
    "first_shares": "position",
    "coordinate_addition": False,
    "coordinate_scale": 2.0,
    "coordinate_unit": "floor_sd",
    "early_iterations": 1,
    "first_margin": 0.3,
    "last_margin": 0.8,
    "margin_epochs": 3.0,
    "inverse_temperature": 4.0,
    "inverse_temperature_rate": 0.5,
    "class_inverse_temperature": 2.0,
    "damping": 0.5,
    "damped_first": True,
    "variance_floor": 0.2,
    "saving": 4.0,
    "beta_a_unit": 10.0,
    "bayes": {**SMALL_BAYES, "kappa0": 3.0},
}
GENERATIVE = {
    "temperature_epochs": 2,
    "pose_posterior_sd_start": 0.3,
    "early_epochs": 2,
    "ramp_epochs": 2,
    "pixel_sd": 1,
}


@pytest.mark.parametrize(
    ("variant", "others", "context"),
    [
        ("matrix_capsules", MATRIX, {"activation": "mdl"}),
        ("matrix_capsules", MATRIX, {"activation": "mixing", "coordinate_addition": False, "competition": "position"}),
        ("matrix_capsules", MATRIX, {"activation": "bayes", "saving": None, "coordinate_unit": "floor_sd"}),
        ("matrix_capsules", MATRIX, {"activation": "bayes", "saving": None, "loss": "margin"}),
        ("generative", GENERATIVE, {"early_coupling": 1.0}),
    ],
)
def test_the_settings_said_to_be_without_effect_are_those_that_change_nothing(
    variant: str, others: dict[str, Any], context: dict[str, Any]
) -> None:
    """Of how matrix capsules route; the betas themselves may differ where nothing depends on them."""

    def learned_with(**changes: Any) -> Parameters:
        parameters = learned(run_with(variant, {"model": {**context, **changes}}))
        return {name: value for name, value in parameters.items() if "beta" not in name}

    plain, changes = learned_with(), {name: value for name, value in others.items() if name not in context}
    same = {name for name, value in changes.items() if not differ(plain, learned_with(**{name: value}))}
    assert same == run_with(variant, {"model": context}).without_effect().keys()
