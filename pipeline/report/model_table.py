"""One table of all trained models: errors on clean, rotated and warped images, from few images, from novel viewpoints
and under attack; sizes and times; equivariance. And a figure of their errors over their sizes. Every number comes from
a result of some stage; none is measured here.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FormatStrFormatter, LogLocator, NullLocator

from pipeline.data.settings import PUBLISHED
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import in_house_style, panels
from pipeline.drawing.table import Table, spread, tracked
from pipeline.report import data_efficiency, equivariance
from pipeline.report.models import ITSELF, Entry, entries
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label, distinct
from pipeline.results.reading import Numbers, Results
from pipeline.systems import SYSTEMS

NAME = "systems"
NOT_RUN, NO_SENSE = "not run", "does not apply"
ANGLE, WIDEST = 45, 180
"""Degrees within which images are rotated."""
EPSILON = "0.1"
"""Largest change of a pixel by an attack, images in [0, 1]."""
SHARES = ("0.01", "0.1", "1")
"""Of the training images."""
_TITLE = 18  # characters of a panel's title in a line: there may be four panels
_FEW, _MANY = (1, 2, 5), (1, 1.5, 2, 3, 5, 7)
"""Ticks of errors in each decade, where there is more than one and where there is less."""


@dataclass(frozen=True)
class Found:
    """A number of a model, the result that it comes from, and what must be known to read it, in a word or two."""

    value: Measured
    numbers: Numbers
    remark: str = ""


@dataclass(frozen=True)
class Column:
    """A question asked of every model.

    Attributes:
        name: in the CSV file, with the unit.
        head: in words, on the page.
        find: the answer, if there is one.
        applies: whether the question makes sense for a model.
        digits: decimals shown.
    """

    name: str
    head: str
    find: Callable[[Studies, Entry], Found | None]
    applies: Callable[[Entry], bool] = lambda entry: True
    digits: int = 1


@dataclass(frozen=True)
class Studies:
    """What was executed besides the trainings, by the run that it is about."""

    results: Results
    efficiency: dict[str, data_efficiency.Curve]
    equivariance: dict[str, Numbers]
    optimise: dict[str, tuple[str, Numbers]]
    viewpoint: dict[tuple[str, str], tuple[str, Numbers]]
    attack: dict[str, tuple[str, Numbers]]


def studies_of(results: Results) -> Studies:
    """Where several studies are about a run, the first counts. Raises `ResultError` if a result is corrupt."""
    found = Studies(results, {}, {}, {}, {}, {})
    for curve in data_efficiency.curves(results):
        found.efficiency.setdefault(curve.run, curve)
    for item, numbers in results.executed("equivariance"):
        found.equivariance.setdefault(equivariance.variant_of(item, numbers)[0], numbers)
    for item, numbers in results.executed("optimise"):
        study = numbers.settings.optimise[item]
        found.optimise.setdefault(str(study.run), (str(study.chosen), numbers))
    for item, numbers in results.executed("viewpoint"):
        study = numbers.settings.viewpoint[item]
        for network in ("capsules", "cnn"):
            found.viewpoint.setdefault((str(study.axis), str(study[network])), (network, numbers))
    for item, numbers in results.executed("attack"):
        study = numbers.settings.attack[item]
        for network in ("capsules", "cnn"):
            found.attack.setdefault(str(study[network]), (network, numbers))
    return found


# ---- the questions


def _share(share: str, studies: Studies, entry: Entry) -> Found | None:
    curve = studies.efficiency.get(entry.run)
    error = curve.numbers.measured("share", share, curve.how) if curve else None
    return Found(error.scaled(100), curve.numbers) if curve and error else None


def _probe(protocol: str, test: str, studies: Studies, entry: Entry) -> Found | None:
    """Of a linear probe: of the features that are best on clean images."""
    numbers = studies.results.numbers("evaluate", entry.run)
    accuracy = numbers.measured("probe", entry.features, protocol, test) if numbers else None
    remark = "probe" if entry.how == ITSELF else ""
    return Found(accuracy.as_error(), numbers, remark) if numbers and accuracy else None


def _swept(studies: Studies, entry: Entry) -> Found | None:
    numbers = studies.results.numbers("sweep", f"{entry.run}-{WIDEST}")
    accuracy = numbers.measured("probe", entry.features) if numbers else None
    return Found(accuracy.as_error(), numbers, "probe" if entry.how == ITSELF else "") if numbers and accuracy else None


def _optimised(studies: Studies, entry: Entry) -> Found | None:
    engine, numbers = studies.optimise.get(entry.run, ("", None))
    accuracy = numbers.measured("engine", engine, str(WIDEST), "refit_accuracy_after") if numbers else None
    return Found(accuracy.as_error(), numbers, _images(numbers, entry)) if numbers and accuracy else None


def _images(numbers: Numbers, entry: Entry) -> str:
    """Of how many images, where a stage takes the first ones."""
    record = numbers.records[-1]
    study = numbers.settings[record["stage"]][record["item"]]
    return f"{min(study.images, numbers.dataset_of(entry.run).test):,} images"


def _viewed(axis: str, studies: Studies, entry: Entry) -> Found | None:
    network, numbers = studies.viewpoint.get((axis, entry.run), ("", None))
    error = numbers.measured("matched", network, "novel") if numbers else None
    return Found(error.scaled(100), numbers) if numbers and error else None


def _attacked(method: str, studies: Studies, entry: Entry) -> Found | None:
    network, numbers = studies.attack.get(entry.run, ("", None))
    accuracy = numbers.measured("value", method, "general", network, EPSILON) if numbers else None
    return Found(accuracy.as_error(), numbers, _images(numbers, entry)) if numbers and accuracy else None


def _moves(invariance: bool, studies: Studies, entry: Entry) -> Found | None:
    """The mean error over all transformations of the layer that follows them best, or of no change of that layer."""
    numbers = studies.equivariance.get(entry.run)
    followed = equivariance.best_layer(numbers, entry.system) if numbers else None
    if numbers is None or followed is None:
        return None
    if not invariance:
        return Found(followed.error.measured, numbers, str(followed))
    stays = followed.invariance
    return Found(stays.measured, numbers, followed.layer) if stays else None


def _has_viewpoints(entry: Entry) -> bool:
    known = PUBLISHED.get(entry.source)
    return known is None or known.factors is None or bool(known.factors)


def _is_network(entry: Entry) -> bool:
    return entry.system != "regression"


COLUMNS = (
    *(
        Column(f"error_share_{share}_percent", f"{100 * float(share):g} % of images", partial(_share, share))
        for share in SHARES
    ),
    *(
        Column(f"error_rotated_{angle}_percent", f"rotated ±{angle}°", partial(_probe, "refit", f"rotated_{angle}"))
        for angle in (ANGLE, WIDEST)
    ),
    Column(
        f"error_rotated_{WIDEST}_upright_probe_percent",
        f"rotated ±{WIDEST}°, probe of upright images",
        partial(_probe, "fixed", f"rotated_{WIDEST}"),
        applies=_is_network,
    ),
    Column(f"error_trained_on_rotated_{WIDEST}_percent", f"trained on rotated ±{WIDEST}°", _swept),
    Column(
        f"error_optimised_{WIDEST}_percent",
        f"rotated ±{WIDEST}°, optimised",
        _optimised,
        applies=lambda entry: entry.system == "generative",
    ),
    Column("error_affine_percent", "warped", partial(_probe, "refit", "affine")),
    *(
        Column(f"error_novel_{axis}_percent", f"novel {axis}s", partial(_viewed, axis), applies=_has_viewpoints)
        for axis in ("azimuth", "elevation")
    ),
    *(
        Column(f"error_{method}_{EPSILON}_percent", f"{method}, epsilon {EPSILON}", partial(_attacked, method))
        for method in ("FGSM", "BIM")
    ),
    Column("equivariance_error", "equivariance error", partial(_moves, False), applies=_is_network, digits=2),
    Column("invariance_error", "without moving", partial(_moves, True), applies=_is_network, digits=2),
)


# ---- the table


def build(results: Results) -> list[Table]:
    """One table of all models, or none if there are none. Raises `ResultError` if a result is corrupt."""
    found = entries(results)
    if not found:
        return []
    studies = studies_of(results)
    answers = [[column.find(studies, entry) for column in COLUMNS] for entry in found]
    records = [record for entry in found for record in entry.records]
    records += [record for row in answers for answer in row if answer for record in answer.numbers.records]
    shown, keys = zip(*(_shown(entry, row) for entry, row in zip(found, answers, strict=True)), strict=True)
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
    tidy = pd.DataFrame([row for entry, each in zip(found, answers, strict=True) for row in _tidy(entry, each)])
    return [
        Table(NAME, title, caption, tidy, pd.DataFrame(list(shown)), distinct(records), sort=pd.DataFrame(list(keys)))
    ]


def _state(column: Column, entry: Entry, found: Found | None) -> str:
    return "measured" if found else NOT_RUN if column.applies(entry) else NO_SENSE


def _shown(entry: Entry, answers: Iterable[Found | None]) -> tuple[dict[str, str], dict[str, float | str | None]]:
    """A row as text, and what it is sorted by."""
    name = SYSTEMS[entry.system].label
    text = {"run": entry.run, "system": name, "data": dataset_label(entry.records), "classified by": entry.how}
    keys: dict[str, float | str | None] = dict(text)
    size = {"parameters": entry.parameters, "training (s)": entry.seconds}
    text |= {head: NOT_RUN if value is None else f"{value:,.0f}" for head, value in size.items()}
    keys |= size
    text["test error"] = spread(entry.error.mean, entry.error.sd, entry.error.n)
    keys["test error"] = entry.error.mean
    for column, found in zip(COLUMNS, answers, strict=True):
        text[column.head], keys[column.head] = _state(column, entry, found), None
        if found:
            value = found.value
            alone = None if column.digits > 1 else value.n  # standard errors are known of one seed, too
            words = spread(value.mean, value.sd, alone, column.digits)
            text[column.head] = f"{words} ({found.remark})" if found.remark else words
            keys[column.head] = value.mean
    return text, keys


def _tidy(entry: Entry, answers: Iterable[Found | None]) -> Iterator[dict[str, object]]:
    """A row for each question, with the model that it is asked of."""

    def row(name: str, state: str, value: Measured | None, found: Found | None) -> dict[str, object]:
        known = {"value": value.mean, "sd": value.sd, "n": value.n} if value else {}
        records = found.numbers.records if found else entry.records if value else []
        return {
            "run": entry.run,
            "system": entry.system,
            "dataset": dataset_label(entry.records),
            "classified_by": entry.how,
            "parameters": entry.parameters,
            "seconds": entry.seconds,
            "measure": name,
            "state": state,
            "value": None,
            "sd": None,
            "n": None,
            "sd_is": "" if value is None else "standard error" if value.standard_error else "over seeds",
            "remark": found.remark if found else "",
            **known,
            "tracking_run": tracked(records),
        }

    yield row("error_percent", "measured", entry.error, None)
    for column, found in zip(COLUMNS, answers, strict=True):
        yield row(column.name, _state(column, entry, found), found.value if found else None, found)


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


def _bar(error: Measured) -> float:
    """Half the length of an error bar; nan, none, of a single seed."""
    return error.sd if error.n > 1 else math.nan


def _limits(drawn: list[Entry]) -> tuple[float, float] | None:
    """Ticks of a logarithmic axis clearly below and above all errors and bars; None if not all are above 0."""
    ends = [[each.error.mean, each.error.mean - _bar(each.error), each.error.mean + _bar(each.error)] for each in drawn]
    low, high = np.nanmin(ends), np.nanmax(ends)
    if low <= 0:
        return None
    ticks = [step * 10.0**decade for decade in range(-6, 4) for step in _MANY]
    return max(tick for tick in ticks if 1.05 * tick < low), min(tick for tick in ticks if tick > 1.05 * high)


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
                [_bar(each.error) for each in rows],
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
        limits = _limits(drawn)
        if limits is None:
            axis.set_ylim(0, 1.06 * axis.get_ylim()[1])  # no marker lies on the frame
            continue
        axis.set_yscale("log")
        axis.set_ylim(limits)
        axis.yaxis.set_major_locator(LogLocator(subs=_FEW if limits[1] > 10 * limits[0] else _MANY))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes[0].set_ylabel("test error (%)")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    return figure
