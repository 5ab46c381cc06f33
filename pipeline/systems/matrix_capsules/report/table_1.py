"""Table 1 of document 004, what each component of matrix capsules is worth, and test errors of other networks.

Claims are answered by the networks that the profile's `evidence` names. Errors are in percent.
"""

from __future__ import annotations

from contextlib import suppress

from pipeline.drawing.table import Row, Table, cells, in_words, tables_of
from pipeline.results.documents import documents, remarks
from pipeline.results.findings import Finding, Learned, Measure, learned
from pipeline.results.reading import NotMeasuredError, Results, training_behind, with_training
from pipeline.systems.matrix_capsules.report.errors import ERRORS
from pipeline.systems.matrix_capsules.report.runs import (
    SOURCES,
    Trial,
    ablations,
    in_percent,
    paper_values,
    percent,
    rounded,
    runs,
    trained_on,
    trial_of,
)

ROWS = {
    "004.t1.r1": "iterations_1",
    "004.t1.r2": "iterations_2",
    "004.t1.r3": "iterations_3",
    "004.t1.r5": "iterations_5",
    "004.t1.vec": "vector",
    "004.t1.nocoord": "no_coordinates",
    "004.t1.vecnocoord": "vector_no_coordinates",
    "004.t1.margin": "margin",
    "004.t1.xent": "cross_entropy",
    "004.mixing": "mixing",
}
"""By claim, the row that it is about, as evidence and `documents.yaml` call it."""
CONDITION = ("iterations", "pose", "coordinate_addition", "loss", "activation")
"""Settings of the model that tell the rows apart."""


def row_of(trial: Trial) -> str | None:
    """The claim about a trial's row of Table 1; None if the trial changes anything else."""
    if not trial.changes.keys() <= set(CONDITION):
        return None
    theirs, ours = documents()["matrix_capsules"], trial.run.model
    rows = (claim for claim, row in ROWS.items() if all(theirs[row]["model"][name] == ours[name] for name in CONDITION))
    return next(rows, None)


def paper_error(trial: Trial) -> float | None:
    """The paper's error (percent) of a trial's row, on whatever data; None if it has none."""
    return paper_values().get(row_of(trial) or "")


def _row(row: str) -> Measure:
    """Test error of a row of Table 1, from the middle of the image, beside that of the unchanged network."""

    def measure(results: Results) -> Finding:
        rows = results.evidence.matrix_capsules.table_1
        trial = trial_of(results, rows.get(row))
        found = _answer(results, trial, row)
        with suppress(NotMeasuredError):
            unchanged = trial_of(results, rows.get("iterations_3"))
            # But for the condition of Table 1, and the number of seeds
            model = {**unchanged.run.model, **{name: trial.run.model[name] for name in CONDITION}}
            alike = trial.run == {**unchanged.run, "model": model, "replicas": trial.run.replicas}
            if row != "iterations_3" and alike and trial.dataset == unchanged.dataset:
                found.notes.append(_beside(trial, unchanged))
        return found

    return measure


def _beside(trial: Trial, unchanged: Trial) -> str:
    """The error of the unchanged network, and whether a change has the opposite effect of the paper's."""
    error, kept = (each.numbers.needed("test", "centre") for each in (trial, unchanged))
    words = f"the unchanged network, trained alike: {in_percent(kept)}"
    theirs, papers = paper_error(trial), paper_error(unchanged)
    if theirs and papers and (error.mean - kept.mean) * (theirs - papers) < 0:
        words += f", the opposite of the paper's order ({theirs:g} % with the change, {papers:g} % without)"
    return words


def _network(name: str) -> Measure:
    """Test error of a network that is no row of Table 1."""
    return lambda results: _answer(
        results, trial_of(results, results.evidence.matrix_capsules.networks.get(name)), name
    )


def averaged_over_crops(results: Results) -> Finding:
    """Section 5: test error by activations averaged over crops, not from the middle."""
    trial = trial_of(results, results.evidence.matrix_capsules.crops)
    return _answer(results, trial, "iterations_3", "crops", "centre", "from the middle alone")


def error_of_cnn(results: Results) -> Finding:
    """Table 1: test error of the convolutional network, which the paper does not say how long it trained."""
    trial = trial_of(results, results.evidence.matrix_capsules.cnn)
    found = _answer(results, trial, "cnn")
    found.notes.insert(0, f"{trial.run.training.epochs} epochs")
    return found


def _answer(
    results: Results,
    trial: Trial,
    document: str,
    test: str = "centre",
    other: str = "crops",
    words: str = "by several crops",
) -> Finding:
    """The error of a trial in a test, and in another in words, beside a network of `documents.yaml`.

    Of a condition, the training error is that of the epoch whose weights were kept, which is most often the last; its
    curve is not known.
    """
    evaluated, beside = trial.stage == "evaluate", trial.numbers.measured("test", other)
    if evaluated:
        came = learned(results, trial.numbers, trial.name)
    else:
        accuracy = None if trial.run.model.get("mixup") else trial.numbers.measured("train", "accuracy")
        came = Learned(accuracy.as_error().mean) if accuracy else None
    return Finding(
        trial.numbers.needed("test", test).scaled(100),
        with_training(results, trial.numbers, *([trial.name] if evaluated else [])),
        remarks=remarks("matrix_capsules", document, trial.run, trial.dataset),
        notes=[f"{words} {in_percent(beside)}"] if beside else [],
        learned=came,
    )


MEASURES: dict[str, Measure] = {
    **{claim: _row(row) for claim, row in ROWS.items()},
    "004.t1.cnn": error_of_cnn,
    "004.crops": averaged_over_crops,
    "004.small": _network("small"),
    "004.mnist": _network("mnist"),
    "004.cifar": _network("cifar10"),
}


def conditions_by_run(results: Results) -> dict[str, list[Trial]]:
    """The conditions of executed ablations by the run that they change, in the order of Table 1; those that it does not
    have last, and at the end the run itself.
    """
    rows = [*ROWS, None]
    found: dict[str, list[Trial]] = {}
    for trial in sorted(ablations(results), key=lambda trial: rows.index(row_of(trial))):
        found.setdefault(trial.base, []).append(trial)
    evaluated = runs(results, "matrix_capsules")
    return {base: [*of_run, *(trial for trial in evaluated if trial.item == base)] for base, of_run in found.items()}


def build(results: Results) -> list[Table]:
    """Table 1: ours beside the paper's, by the run that is changed."""
    heads = {**ERRORS, "validation": ("validation accuracy (%)", 2)}
    caption = (
        "Networks trained with something changed in the run, and the paper's error (Table 1 and section 5) of the same "
        "condition, if it has one; seconds are of training, all seeds together."
    )
    keys = ["condition", "changed", "trained on", "epochs", "the paper's error (%)", "parameters", "seconds"]
    rows: dict[str, list[Row]] = {}
    for base, trials in conditions_by_run(results).items():
        for trial in trials:
            own = trial.stage == "evaluate"
            changed = "the run itself" if own else in_words(trial.changes)
            trained = training_behind(results, trial.numbers, trial.item) if own else trial.numbers
            size = rounded(trained, "parameters", *(["total"] if own else []))
            paper = paper_error(trial) if trial.dataset.source in SOURCES else None
            of_row: list[object] = [trial.name, changed, trained_on(trial.run), trial.run.training.epochs]
            of_row += ["" if paper is None else paper, size, rounded(trained, "seconds")]
            found = cells(trial.numbers, ERRORS, "test")
            found["validation"] = percent(trained, "validation", "accuracy")
            rows.setdefault(base, []).append((of_row, found, trial.numbers))
    return tables_of("matrix-conditions", "What each component is worth", caption, keys, heads, rows)
