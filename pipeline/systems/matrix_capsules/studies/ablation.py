"""Train and test matrix capsules with some settings of the model changed (document 004, Table 1)."""

from pydantic import Field

from pipeline.context import Context
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun


class AblationParams(Section):
    """Conditions of document 004, Table 1. Each condition changes some settings of a run of matrix capsules."""

    run: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    epochs: int = Field(ge=1, le=10_000, description="maximum number of passes over the training images")
    replicas: int = Field(ge=1, le=1000, description="number of replicas trained in each condition")
    conditions: dict[Name, dict[str, bool | int | float | str | list[int] | dict[str, float]]] = Field(
        min_length=1,
        description="changed settings of the run's model, by condition; empty for the unchanged run",
    )


SETTINGS = AblationParams


def check(params: SharedParams, where: str, study: AblationParams) -> None:
    """Raise ValueError if the variant is wrong, or a condition is invalid, has no effect or does not fit the data."""
    params.check_changes_of_model(where, study.run, "matrix_capsules", study.conditions)


def measure(context: Context) -> Outcome:
    """Train and test the study's run in every condition.

    Returns:
        an outcome. Its table has test errors (in [0, 1]) on central crops, with one row per condition, replica and
        metric of `classification_errors`. Its numbers for each condition are test errors, the epoch whose weights are
        kept, accuracies at this epoch, the number of parameters, and the training time of all replicas in seconds.
    """
    import pandas as pd

    from pipeline.classification.errors import classification_errors
    from pipeline.learning.model import count_parameters
    from pipeline.learning.runs import best_rows, of_kind
    from pipeline.results.spread import nest, spread, stack_replicas
    from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

    settings: AblationParams = context.settings
    unchanged = context.params.runs[settings.run]
    assert isinstance(unchanged, MatrixCapsulesRun)  # `check` has verified this
    dataset, tables, numbers = context.dataset(unchanged.dataset), {}, {}
    for condition in settings.conditions:
        run = ablated(unchanged, settings, condition)
        trained, models = context.train(condition, run)
        networks, best = of_kind(MatrixCapsules, models), best_rows(trained)
        errors = [classification_errors(model, dataset, run.augmentation.crop, many_crops=False) for model in networks]
        tables[condition] = stack_replicas(errors)
        numbers[condition] = {
            "test": nest(tables[condition], ["metric"], "value"),
            "validation": {"accuracy": spread(best["validation_accuracy"])},
            "train": {"accuracy": spread(best["train_accuracy"])},
            "best_epoch": spread(trained.best_epoch),
            "parameters": count_parameters(networks[0]),
            "seconds": round(trained.seconds, 2),
        }
    table = pd.concat(tables, names=["condition"]).reset_index("condition").reset_index(drop=True)
    headline = tuple(f"condition.{name}.test.centre" for name in numbers)[:MOST_HEADLINES]
    return Outcome("ablation", table, {"condition": numbers}, headline)


def ablated(run: MatrixCapsulesRun, study: AblationParams, condition: str) -> MatrixCapsulesRun:
    """A copy of `run` with the replicas and epochs of `study`, and with the model's settings changed by a condition."""
    changed = run.model_copy(update={"model": run.model.with_changes(study.conditions[condition])})
    return changed.with_epochs(study.epochs).model_copy(update={"replicas": study.replicas})
