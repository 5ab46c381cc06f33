"""Tables of matrix capsules and of the convolutional network beside them (document 004)."""

from __future__ import annotations

from pipeline.drawing.drawings import Written, executed
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.params import Params
from pipeline.results.claims import load_claims
from pipeline.results.reading import Measured, Numbers, Results
from pipeline.systems.cnn.settings import CNNRun
from pipeline.systems.matrix_capsules.report.attack_claims import METHODS
from pipeline.systems.matrix_capsules.report.claims import NETWORKS, PAPER_FAMILIAR, TABLE_1, VIEWPOINTS
from pipeline.systems.matrix_capsules.report.runs import SOURCES, capsule_runs, stands_for
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.matrix_capsules.studies.settings import AblationParams

_ERRORS = {"centre": ("error, middle (%)", 2), "crops": ("error, 13 crops (%)", 2)}
_KINDS = {"general": "away from the class", "targeted": "towards another class", "black-box": "through another CNN"}


def _percent(numbers: Numbers, *keys: str) -> Measured | None:
    found = numbers.measured(*keys)
    return found.scaled(100) if found else None


def _plain(numbers: Numbers | None, *keys: str) -> object:
    value = numbers.number(*keys) if numbers else None
    return "" if value is None else round(value)


def errors(results: Results, params: Params, written: Written) -> list[Table]:
    """Test errors of runs, by data set."""
    runs = {name: run for name, run in params.runs.items() if isinstance(run, MatrixCapsulesRun | CNNRun)}
    rows: dict[str, list[Row]] = {}
    for name, run, numbers in executed(results, "evaluate", runs, written):
        found = {column: _percent(numbers, "test", column) for column in _ERRORS}
        rows.setdefault(run.dataset, []).append(([name, run.variant.replace("_", " ")], found, numbers))
    caption = (
        "Test errors from the middle of an image, and from scores averaged over 13 crops of it (capsules' activations, "
        "the CNN's probabilities)."
    )
    return [
        table
        for dataset, of_dataset in rows.items()
        for table in measured_table(
            f"matrix-errors-{dataset}", f"Errors of matrix capsules and the CNN, {dataset}", caption,
            ["run", "network"], _ERRORS, of_dataset,
        )
    ]  # fmt: skip


def changes(study: AblationParams) -> str:
    """What a condition changes, in words."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in study.model.items()) or "nothing"


def conditions(results: Results, params: Params, written: Written) -> list[Table]:
    """Table 1 of document 004: ours beside the paper's, by the run that is changed; the run itself comes last."""
    values = {claim.id: claim.value for claim in load_claims()}
    rows: dict[str, list[Row]] = {}
    for name, study, numbers in executed(results, "ablation", params.ablation, written):
        claim = stands_for(params, name, TABLE_1)
        papers = params.datasets[capsule_runs(params)[study.run].dataset].source in SOURCES
        beside = values[claim] if claim and papers else ""
        took = [_plain(numbers, key) for key in ("parameters", "seconds")]
        of_row: list[object] = [name, changes(study), study.epochs, beside, *took]
        found = {column: _percent(numbers, "test", column) for column in _ERRORS}
        found["validation"] = _percent(numbers, "validation", "accuracy")
        rows.setdefault(study.run, []).append((of_row, found, numbers))
    for name, of_run in rows.items():
        tested, trained = results.numbers("evaluate", name), results.numbers("train", name)
        if tested is not None:
            took = [_plain(trained, "parameters", "total"), _plain(trained, "seconds")]
            found = {column: _percent(tested, "test", column) for column in _ERRORS}
            found["validation"] = _percent(trained, "validation", "accuracy") if trained else None
            of_row = [name, "the run itself", capsule_runs(params)[name].training.epochs, "", *took]
            of_run.append((of_row, found, tested))
    heads = {**_ERRORS, "validation": ("validation accuracy (%)", 2)}
    caption = (
        "Networks trained with something changed in the run, and the paper's error (Table 1 and section 5) where a row "
        "of it has this change; seconds are of training, all seeds together."
    )
    keys = ["condition", "changed", "epochs", "the paper's error (%)", "parameters", "seconds"]
    return [
        table
        for run, of_run in rows.items()
        for table in measured_table(
            f"matrix-conditions-{run}", f"What each component is worth, {run}", caption, keys, heads, of_run
        )
    ]


def viewpoints(results: Results, params: Params, written: Written) -> list[Table]:
    """Table 2 of document 004, and both networks where they are best on familiar viewpoints."""
    values = {claim.id: claim.value for claim in load_claims()}
    rows: list[Row] = []
    for name, study, numbers in executed(results, "viewpoint", params.viewpoint, written):
        papers = {network: values[claim] for claim, (axis, network) in VIEWPOINTS.items() if axis == study.axis}
        for kind in ("matched", "best"):
            for network, words in NETWORKS.items():
                beside = [PAPER_FAMILIAR[study.axis], papers[network]] if kind == "matched" else ["", ""]
                found = {column: _percent(numbers, kind, network, column) for column in ("familiar", "novel")}
                found["epoch"] = numbers.measured(kind, network, "epoch")
                rows.append(([name, study.axis, kind, words, *beside], found, numbers))
    heads = {"familiar": ("error, familiar (%)", 2), "novel": ("error, novel (%)", 2), "epoch": ("epoch", 1)}
    keys = ["study", "axis", "read where", "network", "the paper's, familiar (%)", "the paper's, novel (%)"]
    caption = (
        "Test errors of networks trained on familiar viewpoints alone. Matched: each where it first is as good on "
        "familiar viewpoints as the worse of the two becomes; best: where its error on them is lowest."
    )
    return measured_table("matrix-viewpoints", "Errors on novel viewpoints", caption, keys, heads, rows)


def attacks(results: Results, params: Params, written: Written) -> list[Table]:
    """Figure 3 of document 004 in numbers, a table for each study."""
    tables = []
    for name, study, numbers in executed(results, "attack", params.attack, written):
        epsilons = [f"{epsilon:g}" for epsilon in sorted(set(study.epsilons))]
        rows: list[Row] = []
        for kind, words in _KINDS.items():
            for method in METHODS:
                for network, called in NETWORKS.items():
                    found = {at: _percent(numbers, "value", method, kind, network, at) for at in epsilons}
                    rows.append(([words, method, called], found, numbers))
        caption = (
            f"Percent by epsilon, the most that a pixel of [0, 1] changes; {study.images} images. Away from the class "
            "and through another CNN: accuracy; towards another class: how often images end in the class aimed at. "
            f"BIM has {study.steps} steps."
        )
        heads = {at: (f"epsilon {at}", 1) for at in epsilons}
        keys = ["attack", "method", "network"]
        tables += measured_table(f"matrix-attacks-{name}", f"Adversarial attacks, {name}", caption, keys, heads, rows)
    return tables


def gradients(results: Results, params: Params, written: Written) -> list[Table]:
    """Sizes of the gradients that attacks follow (document 004, section 6)."""
    rows: list[Row] = []
    for name, _, numbers in executed(results, "attack", params.attack, written):
        for network, called in NETWORKS.items():
            median = numbers.measured("gradient", network, "median")
            found = {
                "zeros": _percent(numbers, "gradient", network, "zeros"),
                "median": median.scaled(1e6) if median else None,
            }
            rows.append(([name, called], found, numbers))
    heads = {"zeros": ("exactly 0 (%)", 3), "median": ("median of the others (1e-6)", 3)}
    caption = "Derivatives of an image's loss by its pixels: the share that is exactly 0, and the size of the others."
    return measured_table("matrix-gradients", "Gradients by pixels", caption, ["study", "network"], heads, rows)


BUILDERS = (errors, conditions, viewpoints, attacks, gradients)
