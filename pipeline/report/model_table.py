"""Builds one table that compares trained models. Its measures are test errors under many conditions, and equivariance
errors (`COLUMNS`). It also gives numbers of parameters and training times. All numbers are read from results.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from pipeline.drawing.features import name_of
from pipeline.drawing.table import Table, as_text, tracked
from pipeline.report import data_efficiency, equivariance
from pipeline.report.data_efficiency import ITSELF
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, dataset_label
from pipeline.results.reading import Numbers, Recorded, Results, training_behind
from pipeline.systems import CLASSIFIERS, SYSTEMS
from pipeline.systems.regression.report.claims import executed

NAME = "systems"
NOT_MEASURED = "not measured"
COLUMNS = {
    "error_percent": "test error",
    "error_share_0.01_percent": "1 % of images",
    "error_share_0.1_percent": "10 % of images",
    "error_share_1_percent": "100 % of images",
    "error_rotated_45_percent": "rotated ±45°",
    "error_rotated_180_percent": "rotated ±180°",
    "error_rotated_180_upright_probe_percent": "rotated ±180°, probe of upright images",
    "error_trained_on_rotated_180_percent": "trained on rotated ±180°",
    "error_optimised_180_percent": "rotated ±180°, optimised",
    "error_affine_percent": "warped",
    "error_clusters_percent": "clusters without labels",
    "error_novel_azimuth_percent": "novel azimuths",
    "error_novel_elevation_percent": "novel elevations",
    "error_FGSM_0.1_percent": "FGSM, epsilon 0.1",
    "error_BIM_0.1_percent": "BIM, epsilon 0.1",
    "equivariance_error": "equivariance error",
    "invariance_error": "invariance error",
}
"""Measures of the table. Keys are their names in the CSV file, values are column headings on the page."""
PROBED = {
    "error_rotated_45_percent": ("evaluate", "", "probe", "refit", "rotated_45"),
    "error_rotated_180_percent": ("evaluate", "", "probe", "refit", "rotated_180"),
    "error_rotated_180_upright_probe_percent": ("evaluate", "", "probe", "fixed", "rotated_180"),
    "error_affine_percent": ("evaluate", "", "probe", "refit", "affine"),
    "error_trained_on_rotated_180_percent": ("sweep", "-180", "probe"),
    "error_clusters_percent": ("evaluate", "", "kmeans"),
}
"""Where results have the accuracy for a measure: a stage, a suffix, and nested keys. The item's name is the run's name
plus the suffix. After the first of the nested keys, `_of_models` inserts the name of a set of features."""


# ---- the models


@dataclass(frozen=True)
class Entry:
    """One trained model.

    Attributes:
        error: test error in percent.
        how: what classifies, in words: `ITSELF`, or "linear probe on" and the name of the features.
        features: name of the first set of features that the result has probes for; empty if no probe was fitted.
    """

    run: str
    system: str
    error: Measured
    how: str
    features: str
    parameters: float | None
    seconds: float | None
    records: list[Record]


def _trained(results: Results) -> Iterator[Entry]:
    """Yield an entry for each evaluated run that has a test error and a training result (see `training_behind`)."""
    for run, numbers in results.executed("evaluate"):
        trained, variant = training_behind(results, numbers, run), numbers.run(run).variant
        features = next(iter(numbers.names("probe")), "")
        if variant in CLASSIFIERS:
            how, own = ITSELF, numbers.measured("test", "centre")
            error = _error(numbers, "test", "accuracy") or (own and own.scaled(100))
        else:
            how = f"linear probe on {name_of(features)}"
            error = _error(numbers, "probe", features, "refit", "rotated_0")
        if trained and error:
            records, parameters = [*trained.records, *numbers.records], trained.number("parameters", "total")
            yield Entry(run, variant, error, how, features, parameters, trained.number("seconds"), records)


def _regressions(results: Results) -> Iterator[Entry]:
    """Yield, for each architecture in each study of kind "grid", the regression with the largest capsules."""
    for study in executed(results):
        table = study.table(("model", "size", "test", "parameters", "seconds")) if study.kind == "grid" else None
        if table is None:
            continue
        models = table[table["size"] > 0].sort_values("size").drop_duplicates("model", keep="last")
        for _, row in models.iterrows():
            error = Measured(100 * float(row["test"]), 0.0, 1)
            name = f"{study.name}, {row['model']}, d = {int(row['size'])}"
            size, seconds = float(row["parameters"]), float(row["seconds"])
            yield Entry(name, "regression", error, ITSELF, "", size, seconds, study.numbers.records)


# ---- the answers


Answer = tuple[str, str, Measured | None, list[Record], str]
"""A run, a measure (shown if it is in `COLUMNS`), its number, provenance records, and a short remark, or ""."""


def _of_models(results: Results, models: Sequence[Entry]) -> Iterator[Answer]:
    """Yield the test error of each model, then its errors in `PROBED`. The latter use its first set of features."""
    for entry in models:
        yield entry.run, "error_percent", entry.error, entry.records, ""
        for measure, (stage, ending, kind, *place) in PROBED.items():
            remark = "probe" if entry.how == ITSELF and kind == "probe" else ""
            if numbers := results.numbers(stage, f"{entry.run}{ending}"):
                yield entry.run, measure, _error(numbers, kind, entry.features, *place), numbers.records, remark


def _of_studies(results: Results) -> Iterator[Answer]:
    for item, numbers in results.executed("data_efficiency"):
        run, _, errors = data_efficiency.errors_of(item, numbers)
        for share, value in errors.items():
            yield run, f"error_share_{share}_percent", value.scaled(100), numbers.records, ""
    for item, numbers in results.executed("equivariance"):
        if layer := equivariance.best_of(item, numbers):
            yield layer.run, "equivariance_error", layer.error, numbers.records, layer.words
            yield layer.run, "invariance_error", layer.stays, numbers.records, layer.name
    for item, numbers in sorted(results.executed("optimise"), key=lambda each: -each[1].at("images")):
        study = numbers.settings.optimise[item]
        error = _error(numbers, "engine", study.chosen, "180", "refit_accuracy_after")
        yield study.run, "error_optimised_180_percent", error, numbers.records, _images(numbers, study, study.run)
    for item, numbers in results.executed("viewpoint"):
        study = numbers.settings.viewpoint[item]
        for network in ("capsules", "cnn"):
            error = numbers.measured("late", network, "novel")
            yield study[network], f"error_novel_{study.axis}_percent", error and error.scaled(100), numbers.records, ""
    for item, numbers in results.executed("attack"):
        study = numbers.settings.attack[item]
        for network in ("capsules", "cnn"):
            for method in ("FGSM", "BIM"):
                error = _error(numbers, "value", method, "general", network, "0.1")
                remark = _images(numbers, study, study[network])
                yield study[network], f"error_{method}_0.1_percent", error, numbers.records, remark


def _error(numbers: Numbers, *place: str) -> Measured | None:
    """The error in percent, computed from the accuracy under the nested keys `place`. None if that is missing."""
    accuracy = numbers.measured(*place)
    return accuracy.as_error() if accuracy else None


def _images(numbers: Numbers, study: Recorded, run: str) -> str:
    """How many test images a study uses, as text: `study.images`, or all test images if there are fewer."""
    return f"{min(study.images, numbers.dataset_of(run).test):,} images"


# ---- the table


def build(results: Results) -> list[Table]:
    """A list with one table. Without models, the list is empty. On the page, the table has a row for each model. In the
    CSV file, it has a row for each pair of a model and a measure.
    """
    order = list(SYSTEMS)
    models = sorted([*_trained(results), *_regressions(results)], key=lambda each: order.index(each.system))
    if not models:
        return []
    answers = [*_of_models(results, models), *_of_studies(results)]
    # If a run has several numbers for a measure, the first is shown. Studies of `optimise` with most images come first.
    found = {(run, measure): more for run, measure, *more in reversed(answers) if more[0]}
    data, shown, records = [], [], list[Record]()
    for entry in models:
        about = {
            "run": entry.run,
            "system": entry.system,
            "dataset": dataset_label(entry.records),
            "classified_by": entry.how,
            "parameters": entry.parameters,
            "seconds": entry.seconds,
        }
        texts = {
            "run": entry.run,
            "system": SYSTEMS[entry.system].label,
            "data": about["dataset"],
            "classified by": entry.how,
            "parameters": NOT_MEASURED if entry.parameters is None else f"{entry.parameters:,.0f}",
            "training (s)": NOT_MEASURED if entry.seconds is None else f"{entry.seconds:,.0f}",
        }
        for measure, words in COLUMNS.items():
            value, of, remark = found.get((entry.run, measure), (None, [], ""))
            told = {"value": value.mean, "sd": value.sd, "n": value.n} if value else {}
            kind = "" if value is None else "standard error" if value.standard_error else "over seeds"
            data.append(
                about | {"measure": measure, **told, "sd_is": kind, "remark": remark, "tracking_run": tracked(of)}
            )
            texts[words] = (as_text(value) or NOT_MEASURED) + (f" ({remark})" if remark else "")
            records += of
        shown.append(texts)
    caption = (
        "Test errors in percent, ± one sd over seeds, and the training time of all seeds. Only compare models on equal "
        "data. A model that learned without labels is tested by a linear probe (see: classified by); (probe) marks "
        "probes on a network that is itself a classifier. 1, 10, 100 % of images: trained again on this share, mostly "
        "for fewer steps. Rotated, warped: so are the test images and those to which probes are fitted, except for the "
        "probe of upright images. Optimised: posteriors are optimised for each image. Clusters: k-means, with the best "
        "matching of clusters to classes. Novel viewpoints: trained again on familiar viewpoints only, possibly of "
        "another data set; errors are means over the last ten epochs. FGSM, BIM: attacks that change pixels by at most "
        "0.1. Equivariance error, ± one standard error: error of predicting a layer on moved images, divided by the "
        "layer's sd within classes, for the best predicted layer; invariance error: the same if this layer is "
        "predicted to stay unchanged."
    )
    title = "Efficiency and robustness of all systems"
    return [Table(NAME, title, caption, pd.DataFrame(data), pd.DataFrame(shown), records)]
