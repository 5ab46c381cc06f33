"""The effect of single changes in training on the error on held-out images.

Settings of runs are chosen by this error, never by the test error. For each value in `held_out` in turn, the training
images with this value of the study's factor are held out. If the factor is `instance`, the held-out images show toys
that the network has not seen. Networks are evaluated after the last epoch. If the epoch with the lowest error on the
held-out images were chosen, the error would be too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field

from pipeline.classification.settings import CroppedRun
from pipeline.context import Context
from pipeline.data.settings import HoldoutParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.settings import Name, Section, check_once
from pipeline.shared_params import SharedParams

if TYPE_CHECKING:
    import pandas as pd

    from pipeline.learning.train import Trained

AnyRun = TypeVar("AnyRun", bound=CroppedRun)

ERRORS = {"new": "validation_accuracy", "known": "known_accuracy", "train": "train_accuracy"}
"""For each error in the result, the column of the training's history with the accuracy. The error is 1 - accuracy."""


class RecipeParams(Section):
    """Single changes in the training of a network, compared by the error on held-out images."""

    run: Name = Field(description="a key of `runs` whose variant is matrix_capsules or cnn")
    factor: Literal["instance", "azimuth", "elevation", "lighting"] = Field(description="its values are held out")
    held_out: Annotated[list[Annotated[int, Field(ge=0, le=360)]], AfterValidator(check_once)] = Field(
        min_length=1, description="values of the factor; a network is trained without each value in turn"
    )
    known_share: float = Field(ge=0, lt=1, description="share of images with other values to test on, not train on")
    replicas: int = Field(ge=1, le=1000, description="number of replicas for each condition and held-out value")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images; a condition may change them")
    conditions: dict[
        Name, dict[Literal["augmentation", "training", "model"], dict[str, bool | int | float | str | list[int]]]
    ] = Field(
        min_length=1,
        description="changed settings of the run, by condition; empty for the unchanged run",
    )

    def changed(self, run: AnyRun, condition: str) -> AnyRun:
        """The run with a condition's settings and the study's `replicas`. A condition's `epochs` replace the study's.

        Raises `ValidationError` if the settings do not give a valid run.
        """
        changes = self.conditions[condition]
        epochs = changes.get("training", {}).get("epochs", self.epochs)
        values: dict[str, Any] = run.model_dump() | {"replicas": self.replicas}
        for part, changed in changes.items():
            values[part] |= changed
        type(run).model_validate(values)  # raises also if the condition's epochs are invalid
        values["training"]["epochs"] = run.training.epochs  # from these, `with_epochs` scales the schedule of the model
        return type(run).model_validate(values).with_epochs(int(epochs))  # type: ignore[arg-type]

    def without(self, run: AnyRun, value: int) -> AnyRun:
        """The run trained without the images of one value of the factor."""
        holdout = HoldoutParams(factor=self.factor, value=value, known_share=self.known_share)
        return run.model_copy(update={"holdout": holdout})


SETTINGS = RecipeParams


def check(params: SharedParams, where: str, study: RecipeParams) -> None:
    """Raise `ValueError` for an unknown run or factor, an invalid condition, or model settings without effect."""
    run = params.run_of(f"{where}.run", study.run, "matrix_capsules", "cnn")
    assert isinstance(run, CroppedRun)
    params.check_factor(f"{where}.factor", study.factor, run.dataset)
    for condition in study.conditions:
        place = f"{where}.conditions.{condition}"
        with params.named(place):
            changed = study.changed(run, condition)
        params.check_effect(f"{place}.model", changed, study.conditions[condition].get("model", {}))
        params.check_fits(place, changed, run.dataset)


def measure(context: Context) -> Outcome:
    """Train the run of an entry of `recipe` in every condition, each time without images of one `held_out` value."""
    import pandas as pd

    settings: RecipeParams = context.settings
    unchanged = context.params.runs[settings.run]
    assert isinstance(unchanged, CroppedRun)  # params.yaml was checked
    tables = []
    for condition in settings.conditions:
        run = settings.changed(unchanged, condition)
        for value in settings.held_out:
            trained, _ = context.train(f"{condition}-{value}", settings.without(run, value), key=condition)
            tables.append(errors(trained).assign(condition=condition, held_out=value))
    return outcome(pd.concat(tables, ignore_index=True))


def errors(trained: Trained) -> pd.DataFrame:
    """Errors in [0, 1] and seconds of training: one row per replica and metric. Columns: replica, metric, value.

    Errors after the last epoch: `new` on held-out images, `known` on a random share (`known_share`) of other images.
    `train` is the mean error on augmented training images in the last epoch. `seconds` is a mean over replicas.
    """
    last = trained.history.groupby("replica").tail(1).rename(columns={column: name for name, column in ERRORS.items()})
    measured = [name for name in ERRORS if name in last]
    last[measured] = 1 - last[measured]
    last["seconds"] = trained.seconds / len(last)
    return last.melt("replica", [*measured, "seconds"], "metric").sort_values("replica", kind="stable")


def outcome(table: pd.DataFrame) -> Outcome:
    """The study's outcome, from the `errors` of all trainings with two more columns, condition and held_out."""
    from pipeline.results.spread import nest

    found = nest(table, ["condition", "metric"], "value")
    headline = tuple(f"condition.{condition}.new" for condition in found)[:MOST_HEADLINES]
    table = table[["condition", "held_out", "replica", "metric", "value"]]
    return Outcome("recipe", table, {"condition": found}, headline)
