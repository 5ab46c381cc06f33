"""Tables of matrix capsules and of the convolutional network beside them (document 004)."""

from __future__ import annotations

import pandas as pd

from pipeline.drawing.table import Row, Table, in_words, measured_table, spread
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.public_curves import load_public_curves
from pipeline.results.reading import Numbers, Results, training_behind
from pipeline.systems.matrix_capsules.report.claims import (
    NETWORKS,
    PAPER_FAMILIAR,
    VIEWPOINTS,
    conditions_by_run,
    paper_error,
    paper_values,
)
from pipeline.systems.matrix_capsules.report.claims_of_attacks import METHODS
from pipeline.systems.matrix_capsules.report.images_seen import seen_by_runs
from pipeline.systems.matrix_capsules.report.runs import (
    attack_studies,
    attacked_images,
    runs,
    trained_on,
    viewpoint_studies,
)

_ERRORS = {"centre": ("error, middle (%)", 2), "crops": ("error, 13 crops (%)", 2)}
_KINDS = {"general": "away from the class", "targeted": "towards another class", "black-box": "through another CNN"}


def _percent(numbers: Numbers | None, *keys: str) -> Measured | None:
    found = numbers.measured(*keys) if numbers else None
    return found.scaled(100) if found else None


def _plain(numbers: Numbers | None, *keys: str) -> object:
    value = numbers.number(*keys) if numbers else None
    return "" if value is None else round(value)


def build(results: Results) -> list[Table]:
    """Every table of matrix capsules."""
    builders = (errors, images_seen, conditions, recipes, viewpoints, attacks, gradients)
    return [table for builder in builders for table in builder(results)]


def errors(results: Results) -> list[Table]:
    """Test errors of runs, by data set."""
    rows: dict[str, list[Row]] = {}
    for trial in [*runs(results, "evaluate"), *runs(results, "evaluate", "cnn")]:
        found = {column: _percent(trial.numbers, "test", column) for column in _ERRORS}
        keys: list[object] = [trial.item, trial.run.variant.replace("_", " "), trained_on(trial.run)]
        rows.setdefault(trial.run.dataset, []).append((keys, found, trial.numbers))
    caption = (
        "Test errors from the middle of an image, and from scores averaged over 13 crops of it (capsules' activations, "
        "the CNN's probabilities)."
    )
    return [
        table
        for dataset, of_dataset in rows.items()
        for table in measured_table(
            f"matrix-errors-{dataset}", f"Errors of matrix capsules and the CNN, {dataset}", caption,
            ["run", "network", "trained on"], _ERRORS, of_dataset,
        )
    ]  # fmt: skip


def images_seen(results: Results) -> list[Table]:
    """Test errors on smallNORB by how many images networks had seen: our runs, and what others published."""
    ours = seen_by_runs(results)
    if not ours:
        return []
    records = [record for each in ours for record in (*each.trained.records, *each.trial.numbers.records)]
    rows: list[tuple[object, ...]] = []
    for each in ours:
        run, error, parameters = each.trial.run, each.error, _plain(each.trained, "parameters", "total")
        note = f"ours, activation {run.model.activation}, trained on {trained_on(run)}"
        sd = error.sd if error.n > 1 else None
        rows.append((each.trial.item, parameters, each.iterations, each.images, error.mean, sd, "measured", note))
    for curve in load_public_curves():
        source, known = f"{curve.name} ({curve.source})", (curve.parameters or "", curve.iterations or "")
        rows += [(source, *known, images, error, None, curve.read, curve.note) for images, error in curve.points]
    columns = ["source", "parameters", "iterations", "images_seen_millions", "test_error_percent", "sd", "read", "note"]
    data = pd.DataFrame(rows, columns=columns)
    shown = data.assign(
        images_seen_millions=[f"{value:.3g}" for value in data["images_seen_millions"]],
        test_error_percent=[spread(mean, sd) for mean, sd in zip(data["test_error_percent"], data["sd"], strict=True)],
    ).drop(columns="sd")
    shown.columns = pd.Index(
        ["source", "parameters", "iterations", "images seen (millions)", "test error (%)", "how it was read", "notes"]
    )
    caption = (
        "An image counts each time that it is seen: epochs times training images. Ours are errors of all test images "
        f"at the end, on {dataset_label(records)}; the others were published, on the original files, and their recipes "
        "differ as the notes say."
    )
    title = "Test errors on smallNORB against images seen in training"
    return [Table("matrix-images-seen", title, caption, data, shown, records)]


def conditions(results: Results) -> list[Table]:
    """Table 1 of document 004: ours beside the paper's, by the run that is changed; the run itself comes last."""
    values = paper_values()
    rows: dict[str, list[Row]] = {}
    for base, trials in conditions_by_run(results).items():
        of_base = rows.setdefault(base, [])
        itself = [trial for trial in runs(results, "evaluate") if trial.item == base]
        for trial in [*trials, *itself]:
            own = trial in itself
            changed = "the run itself" if own else in_words(trial.changes)
            trained = training_behind(results, trial.numbers, trial.item) if own else trial.numbers
            size = ["parameters", "total"] if own else ["parameters"]
            beside = paper_error(trial, values)
            of_row: list[object] = [trial.name, changed, trained_on(trial.run), trial.run.training.epochs]
            of_row += ["" if beside is None else beside, _plain(trained, *size), _plain(trained, "seconds")]
            found = {column: _percent(trial.numbers, "test", column) for column in _ERRORS}
            found["validation"] = _percent(trained, "validation", "accuracy")
            of_base.append((of_row, found, trial.numbers))
    heads = {**_ERRORS, "validation": ("validation accuracy (%)", 2)}
    caption = (
        "Networks trained with something changed in the run, and the paper's error (Table 1 and section 5) of the same "
        "condition, if it has one; seconds are of training, all seeds together."
    )
    keys = ["condition", "changed", "trained on", "epochs", "the paper's error (%)", "parameters", "seconds"]
    return [
        table
        for run, of_run in rows.items()
        for table in measured_table(
            f"matrix-conditions-{run}", f"What each component is worth, {run}", caption, keys, heads, of_run
        )
    ]


def recipes(results: Results) -> list[Table]:
    """What changes of a training come to on objects that it does not see."""
    rows: list[Row] = []
    for study, numbers in results.executed("recipe"):
        settings = numbers.settings.recipe[study]
        for condition in numbers.names("condition"):
            parts = settings.conditions.get(condition, {}).values()
            changed = in_words({name: value for part in parts for name, value in part.items()})
            held_out = ", ".join(f"{settings.factor} {value}" for value in settings.held_out)
            epochs = numbers.trained[condition].training.epochs
            seconds = _plain(numbers, "condition", condition, "seconds", "mean")
            keys: list[object] = [settings.run, condition, changed, held_out, epochs, seconds]
            found = {name: _percent(numbers, "condition", condition, name) for name in ("new", "known", "train")}
            rows.append((keys, found, numbers))
    heads = {
        "new": ("error, new objects (%)", 1),
        "known": ("known objects (%)", 1),
        "train": ("training images (%)", 1),
    }
    caption = (
        "Networks trained with something changed in the run. New objects are the images held out, known objects other "
        "images like those trained on: both errors are of the network after its last epoch. That on training images is "
        "the mean over the last epoch, on images as they are augmented, and thus cannot be compared between conditions "
        "that augment differently. Each network counts as a seed, whether its seed or the value held out is another; "
        "seconds are the mean of these trainings. No test image is used."
    )
    head = ["run", "condition", "changed", "held out", "epochs", "seconds"]
    return measured_table("matrix-recipe", "Changes of training, on objects held out", caption, head, heads, rows)


def viewpoints(results: Results) -> list[Table]:
    """Table 2 of document 004, and both networks where they are best on familiar viewpoints."""
    values = paper_values()
    rows: list[Row] = []
    for study in viewpoint_studies(results):
        numbers, at = study.numbers, study.settings.axis
        papers = {network: values[claim] for claim, (axis, network) in VIEWPOINTS.items() if axis == at}
        for kind in ("matched", "best"):
            for network, words in NETWORKS.items():
                beside = [PAPER_FAMILIAR[at], papers[network]] if kind == "matched" else ["", ""]
                found = {column: _percent(numbers, kind, network, column) for column in ("familiar", "novel")}
                found["epoch"] = numbers.measured(kind, network, "epoch")
                views = trained_on(study.capsules if network == "capsules" else study.cnn)
                rows.append(([study.item, at, kind, words, views, *beside], found, numbers))
    heads = {"familiar": ("error, familiar (%)", 2), "novel": ("error, novel (%)", 2), "epoch": ("epoch", 1)}
    papers_columns = ["the paper's, familiar (%)", "the paper's, novel (%)"]
    keys = ["study", "axis", "read where", "network", "trained on", *papers_columns]
    caption = (
        "Test errors of networks trained on familiar viewpoints alone. Matched: each where it first is as good on "
        "familiar viewpoints as the worse of the two becomes; best: where its error on them is lowest."
    )
    return measured_table("matrix-viewpoints", "Errors on novel viewpoints", caption, keys, heads, rows)


def attacks(results: Results) -> list[Table]:
    """Figure 3 of document 004 in numbers, a table for each study."""
    tables = []
    for study in attack_studies(results):
        name, numbers = study.item, study.numbers
        epsilons = [f"{epsilon:g}" for epsilon in sorted(set(study.settings.epsilons))]
        rows: list[Row] = []
        for kind, words in _KINDS.items():
            for method in METHODS:
                for network, called in NETWORKS.items():
                    found = {at: _percent(numbers, "value", method, kind, network, at) for at in epsilons}
                    rows.append(([words, method, called], found, numbers))
        caption = (
            f"Percent by epsilon, the most that a pixel of [0, 1] changes; {attacked_images(study):,} images. Away "
            "from the class and through another CNN: accuracy; towards another class: how often images end in the "
            f"class aimed at. BIM has {study.settings.steps} steps."
        )
        heads = {at: (f"epsilon {at}", 1) for at in epsilons}
        keys = ["attack", "method", "network"]
        tables += measured_table(f"matrix-attacks-{name}", f"Adversarial attacks, {name}", caption, keys, heads, rows)
    return tables


def gradients(results: Results) -> list[Table]:
    """Sizes of the gradients that attacks follow (document 004, section 6)."""
    rows: list[Row] = []
    for study in attack_studies(results):
        for network, called in NETWORKS.items():
            median = study.numbers.measured("gradient", network, "median")
            found = {
                "zeros": _percent(study.numbers, "gradient", network, "zeros"),
                "median": median.scaled(1e6) if median else None,
            }
            rows.append(([study.item, called], found, study.numbers))
    heads = {"zeros": ("exactly 0 (%)", 3), "median": ("median of the others (1e-6)", 3)}
    caption = "Derivatives of an image's loss by its pixels: the share that is exactly 0, and the size of the others."
    return measured_table("matrix-gradients", "Gradients by pixels", caption, ["study", "network"], heads, rows)
