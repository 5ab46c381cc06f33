"""Which figures of matrix capsules there are, and their words (document 004)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd

from pipeline.data.norb import CATEGORIES
from pipeline.drawing.drawings import Drawing, Written, executed
from pipeline.params import Params
from pipeline.results.claims import load_claims
from pipeline.results.reading import Numbers, Record, Results, dataset_label
from pipeline.systems.cnn.settings import CNNRun
from pipeline.systems.matrix_capsules.report import curves as matrix_curves
from pipeline.systems.matrix_capsules.report import pictures as matrix_pictures
from pipeline.systems.matrix_capsules.report.attack_claims import COLUMNS
from pipeline.systems.matrix_capsules.report.claims import CNN_CLAIM, TABLE_1, VIEWPOINTS
from pipeline.systems.matrix_capsules.report.curves import Dot, Matched
from pipeline.systems.matrix_capsules.report.runs import PAPER_DATASET, SOURCES, capsule_runs, cnn_runs, stands_for
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun

_TESTS = ("replica", "test", "accuracy")
_ACCURACIES = ("replica", "epoch", "train_accuracy", "validation_accuracy")


def draw(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Every figure of matrix capsules and of the convolutional network beside them."""
    yield from _trained(results, params, written)
    yield from _factors(results, params, written)
    yield from _conditions(results, params, written)
    yield from _votes(results, params, written)
    yield from _viewpoints(results, params, written)
    yield from _attacks(results, params, written)


_Tables = dict[str, tuple[bool, pd.DataFrame]]
"""Of runs by name, whether each is of the convolutional network, and a table of it."""


def _of_datasets(
    results: Results, params: Params, written: Written, stage: str, columns: Sequence[str]
) -> Iterator[tuple[str, _Tables, list[Record]]]:
    """Each data set with the tables of a stage for all runs on it, and where they come from."""
    tables: dict[str, _Tables] = {}
    records: dict[str, list[Record]] = {}
    for name, run in params.runs.items():
        if not isinstance(run, MatrixCapsulesRun | CNNRun):
            continue
        table, numbers = results.table(stage, name, columns), results.numbers(stage, name)
        if table is None or numbers is None:
            written.miss(f"{stage}/{name}")
            continue
        tables.setdefault(run.dataset, {})[name] = (isinstance(run, CNNRun), table)
        records.setdefault(run.dataset, []).extend(numbers.records)
    for dataset, of_dataset in tables.items():
        yield dataset, of_dataset, records[dataset]


def _trained(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Of all runs on a data set."""
    for dataset, tables, records in _of_datasets(results, params, written, "train", _ACCURACIES):
        yield Drawing(
            f"matrix-learning-{dataset}",
            "svg",
            partial(matrix_curves.accuracies, tables),
            f"Errors of matrix capsules and the CNN as they learn, {dataset}",
            "How fast either network learns and how far training and validation part; training images are cropped at "
            "random places in random light, validation images in the middle. Lines are means over seeds.",
            "Two line plots of error over epochs, training and validation, a line for each run.",
            records,
        )


def _factors(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Of all runs on a data set whose images are known by more than their class."""
    for dataset, tested, records in _of_datasets(results, params, written, "evaluate", _TESTS):
        tables = {name: (is_cnn, matrix_curves.by_factor(table)) for name, (is_cnn, table) in tested.items()}
        if all(table.empty for _, table in tables.values()):
            continue
        yield Drawing(
            f"matrix-factors-{dataset}",
            "svg",
            partial(matrix_curves.factors, tables),
            f"Which images matrix capsules and the CNN misread, {dataset}",
            "Whether errors depend on where the camera stands, on the light and on the object; means over seeds. The "
            f"{params.datasets[dataset].test:,} test images of {dataset_label(records)} are shared among a panel's "
            "points.",
            "A panel for each factor: test error by its value, a line for each run.",
            records,
        )


def _conditions(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Of all conditions of a run."""
    claims = {claim.id: claim.value for claim in load_claims()}
    found: dict[str, list[tuple[str, Numbers]]] = {}
    for name, study, numbers in executed(results, "ablation", params.ablation, written):
        found.setdefault(study.run, []).append((name, numbers))
    for run, conditions in found.items():
        dataset = capsule_runs(params)[run].dataset
        papers = params.datasets[dataset].source in SOURCES
        dots = []
        for name, numbers in conditions:
            claim = stands_for(params, name, TABLE_1)
            error = numbers.measured("test", "centre")
            if error is not None:
                dots.append(Dot(name, error.scaled(100), claims[claim] if claim and papers else None))
        records = [record for _, numbers in conditions for record in numbers.records]
        cnns = [name for name, cnn in cnn_runs(params).items() if cnn.dataset == dataset]
        longer = capsule_runs(params)[run].training.epochs
        beside: dict[str, tuple[str, float | None]] = {run: (f"{run} ({longer} epochs)", None)}
        beside |= {name: (f"{name} (CNN)", claims[CNN_CLAIM] if papers else None) for name in cnns}
        for name, (words, value) in beside.items():
            tested = results.numbers("evaluate", name)
            error = tested.measured("test", "centre") if tested else None
            if tested and error:
                dots.append(Dot(words, error.scaled(100), value))
                records += tested.records
        if dots:
            yield Drawing(
                f"matrix-conditions-{run}",
                "svg",
                partial(matrix_curves.conditions, dots),
                f"What each component of matrix capsules is worth, {run}",
                "Whether errors of networks with something changed are ordered as in Table 1 of document 004 (open "
                f"diamonds, on {PAPER_DATASET}, each axis from 0); ours on {dataset_label(records)}, bars are one sd "
                "over seeds. At the end the run itself, as long as it was trained, and the CNN.",
                "Two dot plots of test error with a row for each condition, ours and the paper's.",
                records,
            )


def _votes(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    names = ("counts", "edges", "images", "labels", "scores")
    for run, settings in capsule_runs(params).items():
        numbers = results.numbers("evaluate", run)
        if numbers is None:
            continue  # noted where accuracies are drawn
        arrays = results.examples("evaluate", run, names)
        if arrays is None:
            written.miss(f"evaluate/{run} (its examples)")
            continue
        toys = params.datasets[settings.dataset].source in SOURCES
        classes = CATEGORIES if toys else tuple(map(str, range(settings.model.classes)))
        yield Drawing(
            f"matrix-votes-{run}",
            "png",
            partial(matrix_pictures.votes, arrays, classes),
            f"Votes gather around class capsules, {run}",
            "Distances of votes to the mean of each class capsule after each routing iteration, each vote counted by "
            "how much of it is assigned: those for the right class (blue) should draw near and gain, and the others "
            "fade. Orange is the class that the network takes a misread image for (Figure 2 of document 004).",
            f"{len(arrays['counts'])} images, each with histograms of {len(classes)} classes after "
            f"{arrays['counts'].shape[1]} iterations.",
            numbers.records,
        )


def _viewpoints(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    """Of all studies on a data set."""
    claims = {claim.id: claim.value for claim in load_claims()}
    panels: dict[str, dict[str, Matched]] = {}
    records: dict[str, list[Record]] = {}
    for name, study, numbers in executed(results, "viewpoint", params.viewpoint, written):
        table = results.table("viewpoint", name, ("replica", "epoch", "familiar", "novel", "network"))
        if table is None:
            written.miss(f"viewpoint/{name} (its table)")
            continue
        read = {
            network: tuple(numbers.measured("matched", network, where) for where in ("familiar", "novel"))
            for network in numbers.names("matched")
        }
        points = {
            network: (familiar.scaled(100), novel.scaled(100))
            for network, (familiar, novel) in read.items()
            if familiar and novel
        }
        paper = {
            network: value
            for claim, (axis, network) in VIEWPOINTS.items()
            if axis == study.axis and (value := claims[claim]) is not None
        }
        panels.setdefault(study.dataset, {})[name] = Matched(study.axis, table, points, paper)
        records.setdefault(study.dataset, []).extend(numbers.records)
    for dataset, of_dataset in panels.items():
        yield Drawing(
            f"matrix-viewpoints-{dataset}",
            "svg",
            partial(matrix_curves.viewpoints, of_dataset),
            f"Errors on novel viewpoints against those on familiar ones, {dataset}",
            "At the same error on familiar viewpoints, whose is the lower on novel ones? A dot is an epoch of a seed; "
            "large marks are where the networks are matched (bars: one sd over seeds), open ones the paper's on "
            f"{PAPER_DATASET} (Table 2 of document 004).",
            "Scatter plots of error on novel viewpoints over error on familiar ones, a panel for each axis, both "
            "networks in each.",
            records[dataset],
        )


def _attacks(results: Results, params: Params, written: Written) -> Iterator[Drawing]:
    for study, settings, numbers in executed(results, "attack", params.attack, written):
        label, classes = dataset_label(numbers.records), capsule_runs(params)[settings.capsules].model.classes
        table = results.table("attack", study, COLUMNS)
        if table is not None:
            yield Drawing(
                f"matrix-attacks-{study}",
                "svg",
                partial(matrix_curves.attacks, table, 100 / classes),
                f"Adversarial attacks on matrix capsules and on the CNN, {study}",
                "Accuracy as pixels are changed by up to epsilon against the right class; how often an attack towards "
                "another class succeeds; accuracy on images made through another CNN (Figure 3 of document 004; "
                f"{settings.images} images of {label}). Bands are one sd over seeds; dotted is chance.",
                "Three line plots over epsilon, a line for each network and method.",
                numbers.records,
            )
        arrays = results.examples("attack", study, ())
        if arrays is None:
            written.miss(f"attack/{study} (its examples)")
            continue
        yield Drawing(
            f"matrix-attacked-{study}",
            "png",
            partial(matrix_pictures.attacked, arrays),
            f"Images that FGSM made, {study}",
            "Test images as they are, and after attacks through either network, away from their class: how plain to "
            f"see a change by epsilon is, and whether it has a shape (Figure B.3 of document 004; {label}).",
            "A grid of images, a row for each network and epsilon.",
            numbers.records,
        )
