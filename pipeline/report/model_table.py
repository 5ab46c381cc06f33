"""One table of all trained models: errors on clean, rotated and warped images, from few images, from novel viewpoints
and under attack; sizes and times; equivariance. And a figure of their errors over their sizes. Every number comes from
a result of some stage; none is measured here.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from pipeline.data.settings import PUBLISHED
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import in_house_style, panels
from pipeline.drawing.table import Table, spread, tracked
from pipeline.report import data_efficiency, equivariance
from pipeline.report.data_efficiency import ITSELF
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, dataset_label, distinct
from pipeline.results.reading import Numbers, Recorded, Results, training_behind
from pipeline.systems import CLASSIFIERS, SYSTEMS
from pipeline.systems.regression.report.studies import executed

NAME = "systems"
NOT_RUN, NO_SENSE = "not run", "does not apply"
ANGLE, WIDEST = 45, 180
"""Degrees within which images are rotated."""
EPSILON = "0.1"
"""Largest change of a pixel by an attack, images in [0, 1]."""
SHARES = ("0.01", "0.1", "1")
"""Of the training images."""
COLUMNS = {
    **{f"error_share_{share}_percent": f"{100 * float(share):g} % of images" for share in SHARES},
    **{f"error_rotated_{angle}_percent": f"rotated ±{angle}°" for angle in (ANGLE, WIDEST)},
    f"error_rotated_{WIDEST}_upright_probe_percent": f"rotated ±{WIDEST}°, probe of upright images",
    f"error_trained_on_rotated_{WIDEST}_percent": f"trained on rotated ±{WIDEST}°",
    f"error_optimised_{WIDEST}_percent": f"rotated ±{WIDEST}°, optimised",
    "error_affine_percent": "warped",
    **{f"error_novel_{axis}_percent": f"novel {axis}s" for axis in ("azimuth", "elevation")},
    **{f"error_{method}_{EPSILON}_percent": f"{method}, epsilon {EPSILON}" for method in ("FGSM", "BIM")},
    "equivariance_error": "equivariance error",
    "invariance_error": "without moving",
}
"""What is asked of every model: the measure in the CSV file, with its unit, and in words, on the page."""
_TITLE = 18  # characters of a panel's title in a line: there may be four panels


# ---- the models


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
        error = _clean_error(evaluated, evaluated.run(run).variant)
        if trained is None or parameters is None or error is None:
            continue
        records = [*trained.records, *evaluated.records]
        seconds = trained.number("seconds")
        source = str(evaluated.dataset_of(run).source)
        features = _best_features(evaluated)
        yield Entry(run, evaluated.run(run).variant, *error, features, source, parameters, seconds, records)


def _clean_error(numbers: Numbers, variant: str) -> tuple[Measured, str] | None:
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
        if not features.endswith("_sampled")
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


# ---- the answers


@dataclass(frozen=True)
class Found:
    """A number of a model, the provenance of its result, and what must be known to read it, in a word or two."""

    value: Measured
    records: list[Record]
    remark: str = ""


Answers = dict[tuple[str, str], Found]
"""By run and measure."""


def answers(results: Results, models: Sequence[Entry]) -> Answers:
    """Everything that was measured of some models besides their test error. Where several studies are about a run, the
    first counts. Raises `ResultError` if a result is corrupt.
    """
    found: Answers = {}

    def add(run: object, measure: str, value: Measured | None, numbers: Numbers, remark: str = "") -> None:
        if value:
            found.setdefault((str(run), measure), Found(value, numbers.records, remark))

    for entry in models:
        probe = "probe" if entry.how == ITSELF else ""
        if numbers := results.numbers("evaluate", entry.run):
            # Of the features that are best on clean images.
            refit, fixed = ((numbers, "probe", entry.features, protocol) for protocol in ("refit", "fixed"))
            for angle in (ANGLE, WIDEST):
                add(entry.run, f"error_rotated_{angle}_percent", _as_error(*refit, f"rotated_{angle}"), numbers, probe)
            upright = f"error_rotated_{WIDEST}_upright_probe_percent"
            add(entry.run, upright, _as_error(*fixed, f"rotated_{WIDEST}"), numbers, probe)
            add(entry.run, "error_affine_percent", _as_error(*refit, "affine"), numbers, probe)
        if numbers := results.numbers("sweep", f"{entry.run}-{WIDEST}"):
            swept = f"error_trained_on_rotated_{WIDEST}_percent"
            add(entry.run, swept, _as_error(numbers, "probe", entry.features), numbers, probe)
    for curve in data_efficiency.curves(results):
        for share in SHARES:
            error = curve.numbers.measured("share", share, curve.how)
            add(curve.run, f"error_share_{share}_percent", error and error.scaled(100), curve.numbers)
    for item, numbers in results.executed("equivariance"):
        run = equivariance.run_of(item, numbers)
        if layer := equivariance.best_of(equivariance.layers_of(run, numbers)):
            add(run, "equivariance_error", layer.error, numbers, layer.words)
            add(run, "invariance_error", layer.stays, numbers, layer.name)
    for item, numbers in results.executed("optimise"):
        study = numbers.settings.optimise[item]
        error = _as_error(numbers, "engine", study.chosen, str(WIDEST), "refit_accuracy_after")
        add(study.run, f"error_optimised_{WIDEST}_percent", error, numbers, _images(numbers, study, study.run))
    for item, numbers in results.executed("viewpoint"):
        study = numbers.settings.viewpoint[item]
        for network in ("capsules", "cnn"):
            error = numbers.measured("matched", network, "novel")
            add(study[network], f"error_novel_{study.axis}_percent", error and error.scaled(100), numbers)
    for item, numbers in results.executed("attack"):
        study = numbers.settings.attack[item]
        for network in ("capsules", "cnn"):
            for method in ("FGSM", "BIM"):
                error = _as_error(numbers, "value", method, "general", network, EPSILON)
                measure, remark = f"error_{method}_{EPSILON}_percent", _images(numbers, study, study[network])
                add(study[network], measure, error, numbers, remark)
    return found


def _as_error(numbers: Numbers, *place: str) -> Measured | None:
    """Percent, of the accuracy under these keys."""
    accuracy = numbers.measured(*place)
    return accuracy.as_error() if accuracy else None


def _images(numbers: Numbers, study: Recorded, run: str) -> str:
    """Of how many images, where a stage takes the first ones."""
    return f"{min(study.images, numbers.dataset_of(run).test):,} images"


def _applies(measure: str, entry: Entry) -> bool:
    """Whether it makes sense to ask this of a model."""
    if entry.system == "regression" and ("variance" in measure or "upright_probe" in measure):
        return False
    if measure.startswith("error_optimised"):
        return entry.system == "generative"
    known = PUBLISHED.get(entry.source)
    without_viewpoints = known is not None and known.factors is not None and not known.factors
    return not (measure.startswith("error_novel") and without_viewpoints)


# ---- the table


def build(results: Results) -> list[Table]:
    """One table of all models, or none if there are none. Raises `ResultError` if a result is corrupt."""
    models = entries(results)
    if not models:
        return []
    found = answers(results, models)
    records = [record for entry in models for record in entry.records]
    shown, keys, tidy = [], [], []
    for entry in models:
        text, key = _described(entry)
        tidy.append(_tidy(entry, "error_percent", Found(entry.error, entry.records)))
        for measure, head in COLUMNS.items():
            answer = found.get((entry.run, measure))
            tidy.append(_tidy(entry, measure, answer))
            text[head], key[head] = tidy[-1]["state"], None
            if answer:
                text[head], key[head] = _in_words(answer), answer.value.mean
                records += answer.records
        shown.append(text)
        keys.append(key)
    caption = (
        "Test errors in percent, ± one sd over seeds; sizes, and the seconds that all seeds took to train. Compare "
        f"within the same data only. Models that learned without labels are classified by the best of their linear "
        "probes on clean images, here and in every column; (probe) marks probes on networks that classify themselves. "
        "Shares of the training images: with as many steps as on all of them. Turned, warped: probes are fitted again "
        "to images rotated or warped alike, or left as they were fitted to upright ones. Trained on rotated: the whole "
        "model. Optimised: its posteriors, image by image. Novel viewpoints: at equal errors on familiar ones. FGSM, "
        f"BIM: adversarial images, no pixel changed by more than {EPSILON}. Equivariance error, ± one standard error: "
        "of the layer that follows moved images best, relative to how its numbers vary (1: nothing is known of the "
        "image); without moving: of the same layer, if it is taken to stay as it is."
    )
    title = "Efficiency and robustness of all systems"
    data, people, sort = (pd.DataFrame(rows) for rows in (tidy, shown, keys))
    return [Table(NAME, title, caption, data, people, distinct(records), sort=sort)]


def _described(entry: Entry) -> tuple[dict[str, object], dict[str, object]]:
    """What is known of every model, as text, and what it is sorted by."""
    name = SYSTEMS[entry.system].label
    words: dict[str, object] = {"run": entry.run, "system": name, "data": dataset_label(entry.records)}
    words["classified by"] = entry.how
    size = {"parameters": entry.parameters, "training (s)": entry.seconds}
    text = {head: NOT_RUN if value is None else f"{value:,.0f}" for head, value in size.items()}
    error = entry.error
    return (
        {**words, **text, "test error": spread(error.mean, error.sd, error.n)},
        {**words, **size, "test error": error.mean},
    )


def _in_words(answer: Found) -> str:
    value = answer.value
    # Standard errors are known of one seed, too.
    words = spread(value.mean, value.sd, None, 2) if value.standard_error else spread(value.mean, value.sd, value.n)
    return f"{words} ({answer.remark})" if answer.remark else words


def _tidy(entry: Entry, measure: str, answer: Found | None) -> dict[str, object]:
    """The row of a question and the model that it is asked of."""
    value = answer.value if answer else None
    return {
        "run": entry.run,
        "system": entry.system,
        "dataset": dataset_label(entry.records),
        "classified_by": entry.how,
        "parameters": entry.parameters,
        "seconds": entry.seconds,
        "measure": measure,
        "state": "measured" if answer else NOT_RUN if _applies(measure, entry) else NO_SENSE,
        "value": value and value.mean,
        "sd": value and value.sd,
        "n": value and value.n,
        "sd_is": "" if value is None else "standard error" if value.standard_error else "over seeds",
        "remark": answer.remark if answer else "",
        "tracking_run": tracked(answer.records if answer else []),
    }


# ---- the figure


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Error against parameters, a panel for each data set. Raises `ResultError` as `entries`."""
    found = entries(results)
    if not found:
        return
    names = ", ".join(dict.fromkeys(SYSTEMS[each.system].label for each in found))
    yield Drawing(
        "systems-parameters",
        "svg",
        "Test error against the number of parameters",
        "Further left is smaller, further down is better; a point is a trained model, bars are one sd over seeds. "
        "Models that learned without labels are classified by the best of their linear probes.",
        f"Scatter plots of test error over parameters, one for each data set, with a marker for each of {names}.",
        [record for each in found for record in each.records],
        partial(error_over_parameters, found),
    )


@in_house_style
def error_over_parameters(found: list[Entry]) -> Figure:
    """Test error (percent) over parameters, a panel for each data set."""
    datasets = list(dict.fromkeys(dataset_label(each.records) for each in found))
    figure, axes = panels(len(datasets), 2.6)
    for axis, dataset in zip(axes, datasets, strict=True):
        drawn = [each for each in found if dataset_label(each.records) == dataset]
        for name in dict.fromkeys(each.system for each in drawn):
            rows, system = [each for each in drawn if each.system == name], SYSTEMS[name]
            axis.errorbar(
                [each.parameters for each in rows],
                [each.error.mean for each in rows],
                [each.error.sd if each.error.n > 1 else math.nan for each in rows],
                color=system.colour, marker=system.marker, linestyle="", label=system.label,
                alpha=0.7,  # points on top of each other show through
            )  # fmt: skip
        axis.set_xscale("log")
        axis.margins(x=0.15)
        low, high = axis.get_xlim()
        axis.xaxis.set_major_locator(LogLocator(subs=(1,) if high > 30 * low and len(datasets) > 3 else (1, 3)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set(xlabel="parameters", title=textwrap.fill(dataset, _TITLE, break_on_hyphens=False))
        if all(each.error.mean > 0 for each in drawn):
            data_efficiency.logarithmic(axis)
        else:
            axis.set_ylim(0, 1.06 * axis.get_ylim()[1])  # no marker lies on the frame
    axes[0].set_ylabel("test error (%)")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    return figure
