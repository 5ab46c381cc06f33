"""Which figures of matrix capsules there are, and their words (document 004)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import pandas as pd

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import plain
from pipeline.results.provenance import Record, dataset_label
from pipeline.results.public_curves import load_public_curves
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report import curves as matrix_curves
from pipeline.systems.matrix_capsules.report import factors, images_seen
from pipeline.systems.matrix_capsules.report import pictures as matrix_pictures
from pipeline.systems.matrix_capsules.report.claims import VIEWPOINTS, conditions_by_run, paper_error, paper_values
from pipeline.systems.matrix_capsules.report.claims_of_attacks import COLUMNS
from pipeline.systems.matrix_capsules.report.curves import Dot, Matched
from pipeline.systems.matrix_capsules.report.runs import (
    PAPER_DATASET,
    Trial,
    attack_studies,
    attacked_images,
    class_names,
    runs,
    trained_on,
    viewpoint_studies,
)

_TESTS = ("replica", "test", "accuracy")
_ACCURACIES = ("replica", "epoch", "train_accuracy", "validation_accuracy")


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Every figure of matrix capsules and of the convolutional network beside them."""
    yield from _trained(results, written)
    yield from _images_seen(results)
    yield from _factors(results, written)
    yield from _conditions(results)
    yield from _votes(results, written)
    yield from _viewpoints(results, written)
    yield from _attacks(results, written)


def _of_datasets(
    results: Results, written: Written, stage: Literal["train", "evaluate"], columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, tuple[bool, pd.DataFrame]], list[Trial]]]:
    """Each data set with all runs on it: by name, whether each is of the convolutional network, and its table of a
    stage; and the runs.
    """
    found: dict[str, list[tuple[Trial, pd.DataFrame]]] = {}
    for trial in [*runs(results, stage), *runs(results, stage, "cnn")]:
        table = results.table(stage, trial.item, columns)
        if table is None:
            written.miss(f"{stage}/{trial.item} (its table)")
        else:
            found.setdefault(trial.run.dataset, []).append((trial, table))
    for dataset, pairs in found.items():
        tables = {trial.item: (trial.run.variant == "cnn", table) for trial, table in pairs}
        yield dataset, tables, [trial for trial, _ in pairs]


def _records(trials: Sequence[Trial]) -> list[Record]:
    return [record for trial in trials for record in trial.numbers.records]


def _warped(trials: Sequence[Trial]) -> str:
    """Which of some trials were trained on warps too: a sentence, or nothing."""
    names = [trial.name for trial in trials if trained_on(trial.run) != "crops"]
    return f" Trained on crops and warps: {', '.join(names)}." if names else ""


def _trained(results: Results, written: Written) -> Iterator[Drawing]:
    """Of all runs on a data set."""
    for dataset, tables, trials in _of_datasets(results, written, "train", _ACCURACIES):
        yield Drawing(
            f"matrix-learning-{dataset}",
            "svg",
            f"Errors of matrix capsules and the CNN as they learn, {dataset}",
            "How fast networks learn, and how far training and validation errors differ. Training images are cropped "
            "at random positions, with random brightness and contrast, validation images in the middle. Lines are "
            f"means over seeds; axes are linear up to {matrix_curves.LINEAR_ERROR:g} %, then logarithmic."
            f"{_warped(trials)}",
            "Two line plots of error over epochs, training and validation, a line for each run.",
            _records(trials),
            partial(matrix_curves.accuracies, tables),
        )


def _images_seen(results: Results) -> Iterator[Drawing]:
    """Of the best runs on smallNORB."""
    best_network = results.evidence.matrix_capsules.table_1.get("iterations_3")
    drawn = images_seen.drawn(images_seen.seen_by_runs(results), best_network)
    if not drawn:
        return
    records = [record for each in drawn for record in (*each.trained.records, *each.trial.numbers.records)]
    public = load_public_curves()
    watched = any(not each.curve.empty for each in drawn)
    yield Drawing(
        "matrix-images-seen",
        "svg",
        "Test errors on smallNORB against images seen in training",
        f"How long must matrix capsules be trained? In colours, errors of our runs on {dataset_label(records)}: of all "
        f"test images at the end of a training{', and lines of some while it learns' * watched}. In grey, what others "
        "published on the original files; open markers were read off a plot. Recipes differ as well: Heinsen has batch "
        "normalisation, larger images and mixup, and chose on the test set; Hinton et al. trained at most so long.",
        "A plot of test error over images seen, both logarithmic, with a marker for each run of ours and a grey line "
        "or marker for each public implementation.",
        records,
        partial(images_seen.errors, drawn, public),
    )


def _factors(results: Results, written: Written) -> Iterator[Drawing]:
    """Of all runs on a data set whose images are known by more than their class."""
    for dataset, tested, trials in _of_datasets(results, written, "evaluate", _TESTS):
        by_run = {name: factors.by_factor(table) for name, (_, table) in tested.items()}
        tables = {name: table for name, table in by_run.items() if not table.empty}
        if not tables:
            continue
        records = _records(trials)
        images = " or ".join(f"{count:,}" for count in sorted({trial.dataset.test for trial in trials}))
        yield Drawing(
            f"matrix-factors-{dataset}",
            "svg",
            f"Which images matrix capsules and the CNN misclassify, {dataset}",
            "Test errors (%) by the position of the camera, the light and the object; means over seeds. The "
            f"{images} test images of {dataset_label(records)} are shared among the values of a factor."
            f"{_warped(trials)}",
            "A matrix of test errors for each factor: a column for each value, a row for each run.",
            records,
            partial(factors.matrix, tables),
        )


def _conditions(results: Results) -> Iterator[Drawing]:
    """Of all conditions of a run; at the end the run itself, and the convolutional network on the same data."""
    values = paper_values()
    for base, trials in conditions_by_run(results).items():
        datasets = {trial.run.dataset for trial in trials}
        itself = [trial for trial in runs(results, "evaluate") if trial.item == base]
        cnns = [trial for trial in runs(results, "evaluate", "cnn") if trial.run.dataset in datasets]
        dots, drawn = [], []
        for trial in [*trials, *itself, *cnns]:
            error = trial.numbers.measured("test", "centre")
            if error is not None:
                # The paper has one CNN: its error is drawn beside the one of ours that answers for it.
                other = trial in cnns and trial.item != results.evidence.matrix_capsules.cnn
                dots.append(Dot(_name(trial), error.scaled(100), None if other else paper_error(trial, values)))
                drawn.append(trial)
        records = _records(drawn)
        if dots:
            yield Drawing(
                f"matrix-conditions-{base}",
                "svg",
                f"What each component of matrix capsules is worth, {base}",
                "Test errors of networks with one component changed, and those in Table 1 of document 004 (open "
                f"diamonds, on {PAPER_DATASET}). Ours are on {dataset_label(records)}; bars are one sd over seeds. The "
                "last rows are the unchanged network and the CNN."
                f"{_warped(drawn)}",
                "Two dot plots of test error with a row for each condition, ours and the paper's.",
                records,
                partial(matrix_curves.conditions, dots),
            )


def _name(trial: Trial) -> str:
    """What the row of a condition, or of what stands beside them, is called."""
    if trial.stage == "ablation":
        return trial.name.replace("-", " ")
    return f"{trial.item} (CNN)" if trial.run.variant == "cnn" else f"{trial.item} ({trial.run.training.epochs} epochs)"


def _votes(results: Results, written: Written) -> Iterator[Drawing]:
    names = ("counts", "edges", "images", "labels", "scores")
    for trial in runs(results, "evaluate"):
        arrays = results.examples("evaluate", trial.item, names)
        if arrays is None:
            written.miss(f"evaluate/{trial.item} (its examples)")
            continue
        names_of = class_names(trial.numbers.settings, trial.dataset, trial.run.model.classes)
        classes = tuple(map(plain, names_of))
        yield Drawing(
            f"matrix-votes-{trial.item}",
            "png",
            f"Votes gather around class capsules, {trial.item}",
            "Distances of votes to the mean of each class capsule after each routing iteration, weighted by how much "
            "of a vote is assigned (Figure 2 of document 004). Votes for the correct class (blue) should come closer "
            "and gain weight, the others lose weight. Orange: the class that is predicted for a misclassified image. "
            f"Heights are relative to each image's highest bin; axes end beyond {100 * matrix_pictures.SHOWN:.0f} % "
            "of the weight.",
            f"{len(arrays['counts'])} images, each with histograms of {len(classes)} classes after "
            f"{arrays['counts'].shape[1]} iterations.",
            trial.numbers.records,
            partial(matrix_pictures.votes, arrays, classes),
        )


def _viewpoints(results: Results, written: Written) -> Iterator[Drawing]:
    """Of all studies on a data set."""
    values = paper_values()
    panels: dict[str, dict[str, Matched]] = {}
    records: dict[str, list[Record]] = {}
    for study in viewpoint_studies(results):
        numbers, axis, dataset = study.numbers, study.settings.axis, study.settings.dataset
        table = results.table("viewpoint", study.item, ("replica", "epoch", "familiar", "novel", "network"))
        if table is None:
            written.miss(f"viewpoint/{study.item} (its table)")
            continue
        points = {}
        for network in numbers.names("matched"):
            familiar, novel = (numbers.measured("matched", network, where) for where in ("familiar", "novel"))
            if familiar and novel:
                points[network] = (familiar.scaled(100), novel.scaled(100))
        paper = {
            network: value
            for claim, (of_axis, network) in VIEWPOINTS.items()
            if of_axis == axis and (value := values[claim]) is not None
        }
        panels.setdefault(dataset, {})[study.item] = Matched(axis, table, points, paper)
        records.setdefault(dataset, []).extend(numbers.records)
    for dataset, of_dataset in panels.items():
        yield Drawing(
            f"matrix-viewpoints-{dataset}",
            "svg",
            f"Errors on novel viewpoints against those on familiar ones, {dataset}",
            "Which network has the lower error on novel viewpoints, if both have the same error on familiar ones? A "
            "dot is an epoch of a seed. Large marks: where the error of each on familiar viewpoints first falls to the "
            "lowest that the worse of the two reaches, which may be early in training (means over seeds, interpolated "
            f"between epochs; bars: one sd). Open marks: the paper's on {PAPER_DATASET} (Table 2 of document 004).",
            "Scatter plots of error on novel viewpoints over error on familiar ones, a panel for each axis, both "
            "networks in each.",
            records[dataset],
            partial(matrix_curves.viewpoints, of_dataset),
        )


def _attacks(results: Results, written: Written) -> Iterator[Drawing]:
    for study in attack_studies(results):
        records, classes = study.numbers.records, study.capsules.model.classes
        label = dataset_label(records)
        table = results.table("attack", study.item, COLUMNS)
        if table is None:
            written.miss(f"attack/{study.item} (its table)")
        else:
            yield Drawing(
                f"matrix-attacks-{study.item}",
                "svg",
                f"Adversarial attacks on matrix capsules and on the CNN, {study.item}",
                "Left: accuracy on images whose pixels are changed by up to epsilon, away from the correct class. "
                "Middle: how often an attack towards another class succeeds. Right: accuracy on images attacked "
                f"through another CNN (Figure 3 of document 004; {attacked_images(study):,} images of {label}). Bands "
                "are one sd over seeds; dotted is chance.",
                "Three line plots over epsilon, a line for each network and method.",
                records,
                partial(matrix_curves.attacks, table, 100 / classes),
            )
        arrays = results.examples("attack", study.item, ())
        if arrays is None:
            written.miss(f"attack/{study.item} (its examples)")
            continue
        yield Drawing(
            f"matrix-attacked-{study.item}",
            "png",
            f"Images that FGSM made, {study.item}",
            "Test images before and after attacks on each network, away from the correct class: is a change by epsilon "
            f"visible, and does it have a shape? (Figure B.3 of document 004; {label}).",
            "A grid of images, a row for each network and epsilon.",
            records,
            partial(matrix_pictures.attacked, arrays),
        )
