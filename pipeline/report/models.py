"""Every trained model of all systems, with its test error, its parameters and its training time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.drawing.features import look
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record
from pipeline.results.reading import Numbers, Results, training_behind
from pipeline.systems import CLASSIFIERS, SYSTEMS
from pipeline.systems.regression.report.studies import executed

ITSELF = "itself"
"""What classifies, where the model does; otherwise a linear probe does."""
_SAMPLED = "_sampled"


@dataclass(frozen=True)
class Entry:
    """One trained model.

    Attributes:
        error: test error in percent.
        how: what classifies: the model itself, or a linear probe on its features.
        features: the key of the features that a probe classifies best by; empty if no probe was fitted.
        source: of its images.
    """

    run: str
    system: str
    error: Measured
    how: str
    features: str
    source: str
    parameters: float
    seconds: float | None
    records: list[Record]


def entries(results: Results) -> list[Entry]:
    """Every model whose test error and parameters are known, sorted by system.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    found = [*_trained(results), *_regressions(results)]
    return sorted(found, key=lambda each: list(SYSTEMS).index(each.system))


def _trained(results: Results) -> Iterator[Entry]:
    for run, evaluated in results.executed("evaluate"):
        trained = training_behind(results, evaluated, run)
        parameters = trained.number("parameters", "total") if trained else None
        error = _error(evaluated, evaluated.run(run).variant)
        if trained is None or parameters is None or error is None:
            continue
        records = [*trained.records, *evaluated.records]
        seconds = trained.number("seconds")
        source = str(evaluated.dataset_of(run).source)
        features = _best_features(evaluated)
        yield Entry(run, evaluated.run(run).variant, *error, features, source, parameters, seconds, records)


def _error(numbers: Numbers, variant: str) -> tuple[Measured, str] | None:
    """The error on clean test images (percent), and what classifies: of several probes, the best."""
    if variant in CLASSIFIERS:
        accuracy, error = numbers.measured("test", "accuracy"), numbers.measured("test", "centre")
        own = accuracy.as_error() if accuracy else error.scaled(100) if error else None
        return (own, ITSELF) if own else None
    best = _best_features(numbers)
    accuracy = numbers.measured("probe", best, "refit", "rotated_0")
    return (accuracy.as_error(), f"linear probe on {look(best).name}") if accuracy else None


def _best_features(numbers: Numbers) -> str:
    """Of several sets of features, those whose probe is best on clean test images; empty if there is none."""
    probes = {
        features: measured
        for features in numbers.names("probe")
        if not features.endswith(_SAMPLED)
        and (measured := numbers.measured("probe", features, "refit", "rotated_0")) is not None
    }
    return max(probes, key=lambda features: probes[features].mean, default="")


def _regressions(results: Results) -> Iterator[Entry]:
    """Of each grid, and each way to decide, the model with the largest capsules."""
    for study in executed(results):
        table = study.table(("model", "size", "test", "parameters", "seconds")) if study.kind == "grid" else None
        if table is None:
            continue
        models = table[table["size"] > 0].sort_values("size").groupby("model", sort=False).last()
        for model, row in models.iterrows():
            error = Measured(100 * float(row["test"]), 0.0, 1)
            name = f"{study.name}, {model}, d = {int(row['size'])}"
            records = study.numbers.records
            size, seconds = float(row["parameters"]), float(row["seconds"])
            yield Entry(name, "regression", error, ITSELF, "", study.source, size, seconds, records)
