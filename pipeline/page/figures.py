"""Which figures a profile's results give, and what each one says.

Runs, studies and the sweep are taken from the parameters, in their order; what was not executed is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.drawing import curves, pictures, style
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import look
from pipeline.files import write_bytes
from pipeline.params import CLASSIFIERS, Params
from pipeline.results.claims import Claim, load_claims
from pipeline.results.reading import Numbers, Record, ResultError, Results, dataset_label, merged_provenance
from pipeline.systems.attention.report import figures as attention_figures
from pipeline.systems.capsnet.report import figures as capsnet_figures
from pipeline.systems.generative.report import failure_figures
from pipeline.systems.generative.report.claims import TABLE_1
from pipeline.systems.generative.report.runs import PAPER_DATASET, sweep_item
from pipeline.systems.matrix_capsules.report import figures as matrix_figures
from pipeline.systems.regression.report import figures as regression_figures

FEATURES_DRAWN = ("t0", "t0_A0", "posterior", "mu_sigma")
"""The rows of Table 1 and what Figure 4 sets beside them; other features that were probed are in the tables."""

_WITHOUT_BOUND = ("scae",)
"""Variants whose objective is a loss that bounds nothing."""
_WORK = ("replica", "engine", "angle", "round", "evaluations", "seconds", "bound")


def paper_table_1(claims: Sequence[Claim]) -> pd.DataFrame:
    """Table 1 of document 000 as its claims give it: columns features, test, mean, sd (percent)."""
    figures = {claim.id: claim for claim in claims}
    rows = [(features, test, figures[name].value, figures[name].sd) for name, features, test in TABLE_1]
    return pd.DataFrame(rows, columns=["features", "test", "mean", "sd"])


def probe_table(numbers: Numbers) -> pd.DataFrame:
    """The accuracies of one evaluated run: columns features, protocol, test, mean, sd, n (percent)."""
    rows = []
    for features in numbers.names("probe"):
        for protocol in numbers.names("probe", features):
            for test in numbers.names("probe", features, protocol):
                found = numbers.measured("probe", features, protocol, test)
                if found is not None:
                    rows.append((features, protocol, test, found.mean * 100, found.sd * 100, found.n))
    if not rows:
        raise ResultError(f"{numbers.path} holds no accuracy under 'probe'")
    return pd.DataFrame(rows, columns=["features", "protocol", "test", "mean", "sd", "n"])


def sweep_table(results: Results, params: Params, run: str, written: Written) -> tuple[pd.DataFrame, list[Record]]:
    """The sweep of one run: columns features, angle, mean, sd, n (percent), tracking_run, and its items' provenance."""
    rows: list[tuple[str, float, float, float, int, str]] = []
    records: list[Record] = []
    for angle in sorted(params.sweep.angles):
        item = sweep_item(run, angle)
        numbers = results.numbers("sweep", item)
        if numbers is None:
            written.miss(f"sweep/{item}")
            continue
        records += numbers.records
        tracked = " ".join(merged_provenance(numbers.records)["tracking_runs"])
        for features in numbers.names("probe"):
            found = numbers.measured("probe", features)
            if found is not None:
                rows.append((features, angle, found.mean * 100, found.sd * 100, found.n, tracked))
    return pd.DataFrame(rows, columns=["features", "angle", "mean", "sd", "n", "tracking_run"]), records


def companions(params: Params, names: Sequence[str]) -> list[list[str]]:
    """Runs to be shown together: each capsule run with the first SCAE and the first VAE trained on the same images.

    Images are the same when the data set and the augmentation are. Where no SCAE is, one on the same source stands in,
    for its protocol has a canvas and shifts of its own. SCAEs and VAEs without a capsule run stand alone. Classifiers
    have tables of their own.
    """

    names = [name for name in names if params.runs[name].variant not in CLASSIFIERS]

    def images(name: str) -> tuple[Any, ...]:
        run = params.runs[name]
        return run.dataset, run.augmentation.rotation, run.augmentation.shift

    def source(name: str) -> tuple[Any, ...]:
        run = params.runs[name]
        return params.datasets[run.dataset].source, run.augmentation.rotation

    def beside(capsules: str, variant: str, *likeness: Callable[[str], tuple[Any, ...]]) -> list[str]:
        others = [name for name in names if params.runs[name].variant == variant]
        return [other for like in likeness for other in others if like(other) == like(capsules)][:1]

    capsules = [name for name in names if params.runs[name].variant == "generative"]
    groups = [[name, *beside(name, "scae", images, source), *beside(name, "vae", images)] for name in capsules]
    shown = {name for group in groups for name in group}
    return groups + [[name] for name in names if name not in shown]


def other_images(params: Params, group: Sequence[str]) -> str:
    """Words on the runs of a group that learned from other images than its first, empty where there are none."""

    def words(name: str) -> str:
        run = params.runs[name]
        canvas, shift = params.datasets[run.dataset].canvas, run.augmentation.shift
        return f"{canvas}x{canvas} pixels" + (f" shifted by up to {shift:g}" if shift else "")

    first, *others = group
    differing = [f"{name} from {words(name)}" for name in others if words(name) != words(first)]
    return f" ({first} learned from {words(first)}, {' and '.join(differing)})" if differing else ""


def draw_all(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Every figure that the results of a profile give, one at a time.

    Args:
        written: gets the names of the items that were not executed.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    yield from _accuracy(results, params, written)
    yield from _optimised(results, params, written)
    yield from _evaluated(results, params, written)
    yield from _swept(results, params, written)
    yield from _beyond(results, params, written)
    yield from failure_figures.draw(results, params, written)
    yield from regression_figures.draw(results, params, written)
    yield from capsnet_figures.draw(results, params, written)
    yield from attention_figures.draw(results, params, written)
    yield from matrix_figures.draw(results, params, written)
    yield from _trained(results, params, written)


def _trained(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    for run, settings in params.runs.items():
        if settings.variant in CLASSIFIERS:
            continue  # whose figures have several runs in them
        metrics = ("loss" if settings.variant in _WITHOUT_BOUND else "bound", "pixel_error")
        columns = ("replica", "epoch", *(f"{part}_{metric}" for metric in metrics for part in ("train", "validation")))
        table, numbers = results.table("train", run, columns), results.numbers("train", run)
        if table is None or numbers is None:
            written.miss(f"train/{run}")
            continue
        bounded = metrics[0] == "bound"
        aim = "The bound should rise and the pixel error fall" if bounded else "Loss and pixel error should fall"
        yield Drawing(
            f"learning-{run}",
            "svg",
            partial(curves.learning_curves, table),
            f"Learning curves of {run}",
            f"{aim} until both settle, with validation close to training; the vertical axis leaves out the steep start "
            "where it would flatten the rest.",
            f"Two line plots over epochs: {metrics[0]} and pixel error of {run}, training and validation, one line per "
            "seed.",
            numbers.records,
        )


def _evaluated(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    names = ("templates", "alphas", "images", "reconstructions", "arrangements", "angles", "prior_samples")
    for run, settings in params.runs.items():
        if settings.variant != "generative":
            continue
        numbers, arrays = results.numbers("evaluate", run), results.examples("evaluate", run, names)
        if numbers is None or arrays is None:
            written.miss(f"evaluate/{run}" if numbers is None else f"evaluate/{run} (its examples)")
            continue
        yield Drawing(
            f"arrangements-{run}",
            "png",
            partial(
                pictures.over_rotation,
                arrays["angles"],
                [
                    ("input", arrays["images"]),
                    ("reconstruction", arrays["reconstructions"]),
                    ("parts in colour", arrays["arrangements"]),
                ],
            ),
            f"Part arrangements over rotation, {run}",
            "Each part keeps its colour: as long as the model sees the same arrangement, the coloured strokes turn "
            "with the input; where colours change, other parts have taken over (the paper's Figure 5).",
            f"One digit turned step by step; below it the reconstruction of {run} and its parts, each in its colour.",
            numbers.records,
        )
        yield Drawing(
            f"templates-{run}",
            "png",
            partial(pictures.templates, arrays["templates"], arrays["alphas"]),
            f"Templates learned by {run}",
            "Look for stroke-like templates, for parts that were never used (blank alpha), and for templates that are "
            "turned or stretched copies of each other (as in the paper's Figure 6).",
            f"The {len(arrays['templates'])} templates of {run} in a row, with their alpha channels below.",
            numbers.records,
        )
        yield Drawing(
            f"prior-{run}",
            "png",
            partial(pictures.samples, arrays["prior_samples"]),
            f"Samples from the prior of {run}",
            "Objects, then parts, then pixels drawn from the generative model alone: strokes that form digit-like "
            "figures show how much of a digit's geometry the objects hold.",
            f"A grid of {min(len(arrays['prior_samples']), 48)} images sampled from the prior of {run}.",
            numbers.records,
        )


def _optimised(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    names = ("angles", "images", "before", "after", "arrangements_before", "arrangements_after")
    for study, settings in params.optimise.items():
        numbers, arrays = results.numbers("optimise", study), results.examples("optimise", study, names)
        steps = results.table("optimise", study, _WORK)
        if numbers is None:
            written.miss(f"optimise/{study}")
        elif arrays is None:
            written.miss(f"optimise/{study} (its examples)")
        if numbers is not None and arrays is not None:
            rows = [
                ("input", arrays["images"]),
                ("encoder", arrays["before"]),
                ("optimised", arrays["after"]),
                ("encoder's parts", arrays["arrangements_before"]),
                ("optimised parts", arrays["arrangements_after"]),
            ]
            yield Drawing(
                f"reconstructions-{study}",
                "png",
                partial(pictures.over_rotation, arrays["angles"], rows),
                f"Reconstructions before and after test-time optimisation, {study}",
                "Where the encoder's reconstruction fails for a turned digit, climbing the same bound from there "
                f"should repair it (as in the paper's Figure 3); engine: {settings.chosen}.",
                "One digit turned step by step; below it the reconstruction from the encoder and the one after "
                "optimisation, then the parts of each in colour.",
                numbers.records,
            )
        if numbers is not None and steps is not None:
            yield Drawing(
                f"optimisation-{study}",
                "svg",
                partial(curves.optimisation_curves, steps),
                f"The bound against the work of test-time optimisation, {study}",
                "Which engine reaches the higher bound with less work, in gradient evaluations (left) and in seconds "
                "(right; one batch), and whether wide rotations catch up with upright digits; the vertical axis begins "
                "near the encoder's own bounds.",
                "Two line plots of the bound, over gradient evaluations and over seconds: one line per engine for the "
                "narrowest and for the widest range of rotation.",
                numbers.records,
            )


def _accuracy(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    paper = paper_table_1(load_claims())
    found = {}
    for run in params.runs:
        numbers = results.numbers("evaluate", run)
        if numbers is None:
            written.miss(f"evaluate/{run}")
        else:
            found[run] = numbers
    for group in companions(params, list(found)):
        table = pd.concat([probe_table(found[run]) for run in group], ignore_index=True)
        table = table[table["features"].isin(FEATURES_DRAWN)]
        if table.empty:
            continue
        records = [record for run in group for record in found[run].records]
        upright = params.runs[group[0]].augmentation.rotation == 0
        beside = paper[paper["features"].isin(table["features"])] if upright else paper.head(0)
        label = dataset_label(records)
        stand_in = "" if label == PAPER_DATASET or not upright else f" (ours: {label}; the paper's: {PAPER_DATASET})"
        yield Drawing(
            f"accuracy-{group[0]}",
            "svg",
            partial(curves.accuracy_over_rotation, table, beside),
            f"Probe accuracy over rotation, {' and '.join(group)}",
            "How fast each representation loses the class as test images turn further than any it was trained on, with "
            "the probe refit (left: what the paper's capsules agree with) and kept (right); bars: one sd over seeds"
            f"{stand_in}{other_images(params, group)}.",
            "Two plots of accuracy by range of test rotation and for affine warps, one line each for "
            f"{', '.join(look(features).name for features in dict.fromkeys(table['features']))}.",
            records,
        )


def _swept(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    tables = {run: sweep_table(results, params, run, written) for run in params.sweep.runs}
    for group in companions(params, [run for run, (table, _) in tables.items() if not table.empty]):
        table = pd.concat([tables[run][0] for run in group], ignore_index=True)
        table = table[table["features"].isin(FEATURES_DRAWN)]
        if table.empty:
            continue
        yield Drawing(
            f"sweep-{group[0]}",
            "svg",
            partial(curves.accuracy_over_training_range, table),
            f"Trained and tested on rotations, {' and '.join(group)}",
            "Whether training on wider rotations costs the capsules their specialisation, and whether they keep a lead "
            "over the VAE (the paper's Figure 4 says they do not, and nor does SCAE); bars are one sd over seeds"
            f"{other_images(params, group)}.",
            "Accuracy by range of rotation trained and tested on, one line each for "
            f"{', '.join(look(features).name for features in dict.fromkeys(table['features']))}.",
            [record for run in group for record in tables[run][1]],
        )


def _beyond(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Each swept run with parts in any slot beside the first that differs from it in nothing else."""
    swept = {name: run for name in params.sweep.runs if (run := params.runs[name]).variant == "generative"}
    for name, run in swept.items():
        if run.model.slots == "own":
            continue
        own = run.model.model_copy(update={"slots": "own"})
        images = (run.dataset, run.augmentation)
        same = (key for key, each in swept.items() if each.model == own and (each.dataset, each.augmentation) == images)
        baseline = next(same, None)
        if baseline is None:
            continue
        (before, of_baseline), (after, of_run) = (
            sweep_table(results, params, key, written) for key in (baseline, name)
        )
        after = after.assign(features=after["features"] + "_any_slot")
        table = pd.concat([before, after], ignore_index=True)
        table = table[table["features"].isin(["t0", "t0_any_slot"])]
        if table["features"].nunique() < 2:
            continue
        yield Drawing(
            f"beyond-{name}",
            "svg",
            partial(curves.accuracy_over_training_range, table),
            f"Parts in any slot of their parent, {name} beside {baseline}",
            "The paper puts the loss on wide rotations down to templates that are tied to their places in an object. "
            "With that tie cut the line should fall less; where it does not, the tie was not what held it back.",
            f"Accuracy of the t0 probe by range of rotation trained and tested on, one line for {baseline} and one for "
            f"{name}.",
            [*of_baseline, *of_run],
        )


def write_figures(folder: Path, results: Results, params: Params) -> Written:
    """Draw every figure into `folder`; figures that an earlier call left are removed.

    Raises:
        ResultError: a result file is corrupt; it is named.
        FileWriteError: a figure could not be written.
    """
    written = Written()
    for drawing in draw_all(results, params, written):
        path = folder / drawing.file
        write_bytes(path, style.to_bytes(drawing.figure(), drawing.kind))
        written.files.append(path)
    for path in [*folder.glob("*.svg"), *folder.glob("*.png")]:
        if path not in written.files:
            path.unlink()
    return written
