"""Claims and tables about the test errors of the networks of document 004. Table 1 of the document compares matrix
capsules with different components and losses. Table 2 is about novel viewpoints, for two networks with equal errors on
familiar viewpoints (see `classification.viewpoint_matching`).

The section `evidence` of `params.yaml` names the network whose error answers a claim. Errors are in percent. A trial
is a trained network, with its numbers and recorded settings. It is either a run or a condition of an ablation.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from pipeline.drawing.style import BLUE, PURPLE
from pipeline.drawing.table import Row, Table, cells, in_words, measured_table, tables_of
from pipeline.results.claims import load_claims
from pipeline.results.documents import documents, remarks
from pipeline.results.findings import Finding, Learned, Measure, learned
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.reading import NotMeasuredError, Numbers, Recorded, Results, natural, needed_name, with_training

BOTH = ("matrix_capsules", "cnn")
"""The kinds of networks that the document compares. They are values of a run's setting `variant`."""
NETWORKS = {"capsules": "capsules", "cnn": "CNN"}
"""The two networks that a study compares: for each key in results, the name in figures and tables."""
LOOKS = {"capsules": (BLUE, "o"), "cnn": (PURPLE, "v")}
"""Colour and marker of each network, by its key in results."""
SOURCES = ("smallnorb", "smallnorb48", "smallnorb48-posed", "toys")
"""Data sources with smallNORB's classes: smallNORB (the paper's main data set), its copies, and rendered toys."""
CLASSES = ("animal", "human", "airplane", "truck", "car")
"""Class names of smallNORB, by label. An import of `pipeline.data.published` would make all figures depend on it."""
_WARPS = ("rotation", "scale", "aspect", "shear", "shift")
"""Augmentation settings that warp images. Results of older code lack these settings."""
ERRORS = {"centre": ("error, central crop (%)", 2), "crops": ("error, 13 crops (%)", 2)}
"""Heading and decimals of each column of test errors. For `crops`, scores are averaged over 13 crops of an image."""
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
"""For claims about matrix capsules in Table 1, and 004.mixing: the network's name in evidence and `documents.yaml`."""
CONDITION = ("iterations", "pose", "coordinate_addition", "loss", "activation")
"""Settings of the model that differ between the rows of Table 1."""
FAMILIAR_SHARE = 1 / 3
"""The approximate share of smallNORB's images that show familiar viewpoints."""
PAPER_FAMILIAR = {"azimuth": 3.7, "elevation": 4.3}
"""For each axis, the error (percent) on familiar viewpoints at which the paper compares its two networks."""
PAPER_NOVEL_RATIO = {"azimuth": 13.5 / 20, "elevation": 12.3 / 17.8}
"""For each axis, the error of the paper's capsules on novel viewpoints, divided by the error of its CNN on them."""


class Trial(NamedTuple):
    """A trained network and its measured numbers.

    Attributes:
        stage, item: the stage and the item that measured the network.
        name: name of the run or of the condition.
        run, dataset: all settings of the network and of its data, as the result recorded them.
        base: name of the run or, for a condition, of the run that the condition changes.
        changes: the settings of the model that a condition changes, by name, with their new values. Empty for a run.
    """

    stage: str
    item: str
    name: str
    numbers: Numbers
    run: Recorded
    dataset: Recorded
    base: str
    changes: Mapping[str, object]


def runs(results: Results, *variants: str) -> list[Trial]:
    """All evaluated runs whose `variant` is one of `variants`, sorted in the order of `variants`, then by name."""
    found = [
        Trial("evaluate", name, name, numbers, numbers.run(name), numbers.dataset_of(name), name, {})
        for name, numbers in results.executed("evaluate")
    ]
    return [trial for variant in variants for trial in found if trial.run.variant == variant]


def ablations(results: Results) -> Iterator[Trial]:
    """Yield a trial for each condition of all executed ablations, sorted by ablation, then by the condition's name."""
    for item, whole in results.executed("ablation"):
        study = whole.settings.ablation[item]
        for name in sorted(whole.names("condition"), key=natural):
            run, changes = whole.trained[name], study.conditions[name]
            dataset = whole.settings.datasets[run.dataset]
            yield Trial("ablation", item, name, whole.part("condition", name), run, dataset, study.run, changes)


def trial_of(results: Results, network: str | None) -> Trial:
    """The trial called `network`: "<run>" or "<ablation>/<condition>". Raises `NotMeasuredError` if there is none."""
    item, _, condition = needed_name(network).partition("/")
    trials = ablations(results) if condition else runs(results, *BOTH)
    for trial in trials:
        if (trial.item, trial.name) == (item, condition or item):
            return trial
    raise NotMeasuredError(f"{'ablation' if condition else 'evaluate'}/{network} has no result")


def class_names(settings: Recorded, dataset: Recorded, outputs: int) -> tuple[str, ...]:
    """Class names of smallNORB or of a user's own images. A class without a name is called by its number."""
    if dataset.source in SOURCES:
        return CLASSES
    own = settings.get("own_images", {}).get(dataset.source, {}).get("classes", [])
    return (*own, *map(str, range(len(own), outputs)))


def in_percent(share: Measured) -> str:
    """The mean of a share as text, such as "3.1 %"."""
    return f"{100 * share.mean:.1f} %"


def row_of(trial: Trial) -> str | None:
    """The id of the claim about the row of Table 1 with the same settings `CONDITION` as a trial. None if there is no
    such row, or if the trial changes other settings.
    """
    if trial.run.variant != "matrix_capsules" or not trial.changes.keys() <= set(CONDITION):
        return None
    theirs, ours = documents()["matrix_capsules"], trial.run.model
    rows = (claim for claim, row in ROWS.items() if all(theirs[row]["model"][name] == ours[name] for name in CONDITION))
    return next(rows, None)


def _error(results: Results, role: str) -> Finding:
    """The test error of the network that evidence names for `role`. It is measured on central crops or, for the role
    "crops", on 13 crops. A note gives the error in the other test. Remarks say how the document's network differs. An
    ablation has no training curves. Its training errors are those of the epoch whose weights were kept.
    """
    evidence = results.evidence.matrix_capsules
    named = {**evidence.table_1, **evidence.networks, "cnn": evidence.cnn, "crops": evidence.crops}
    trial = trial_of(results, named.get(role))
    document, test, other, words = (
        ("iterations_3", "crops", "centre", "on the central crop only")
        if role == "crops"
        else (role, "centre", "crops", "on several crops")
    )
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


def _novel_capsules(results: Results, axis: str) -> Finding:
    """The capsules' error on novel viewpoints, taken when both networks have equal errors on familiar viewpoints.
    Raises `NotMeasuredError` if these errors differ nevertheless, by more than two standard errors (with the noise of
    images and of replicas).
    """
    item, numbers = results.answering("viewpoint", results.evidence.matrix_capsules.viewpoint.get(axis))
    capsules, cnn = (numbers.needed("matched", network, "familiar") for network in NETWORKS)
    variance = sum(each.variance_of_share(numbers.at("images", "familiar")) for each in (capsules, cnn))
    if abs(capsules.mean - cnn.mean) > SIGNIFICANT_SES * math.sqrt(variance):
        raise NotMeasuredError("the two networks' errors on familiar viewpoints could not be matched")
    at, then = (numbers.needed("matched", network, "epoch").mean for network in NETWORKS)
    epochs, ratio = numbers.trained["capsules"].training.epochs, numbers.needed("novel_ratio")
    notes = [
        f"errors on familiar viewpoints when compared: capsules {in_percent(capsules)} and CNN {in_percent(cnn)} "
        f"(paper: {PAPER_FAMILIAR[axis]} %), on average at epochs {at:.1f} and {then:.1f} of {epochs}",
        f"errors of capsules on novel viewpoints: {ratio.mean:.2f} times the CNN's "
        f"(paper: {PAPER_NOVEL_RATIO[axis]:.2f})",
    ]
    return _novel(item, numbers, "capsules", "matched", "viewpoint", notes)


def _novel_cnn(results: Results, axis: str) -> Finding:
    """The CNN's error on novel viewpoints, averaged over the last epochs."""
    item, numbers = results.answering("viewpoint", results.evidence.matrix_capsules.viewpoint.get(axis))
    familiar = in_percent(numbers.needed("late", "cnn", "familiar"))
    notes = [f"error on familiar viewpoints: {familiar} (paper: {PAPER_FAMILIAR[axis]} %)"]
    return _novel(item, numbers, "cnn", "late", "viewpoint_cnn", notes)


def _novel(item: str, numbers: Numbers, network: str, kind: str, document: str, notes: list[str]) -> Finding:
    """A network's error on novel viewpoints, with remarks. `kind` is "matched" or "late" (see `_viewpoints`)."""
    dataset = numbers.settings.datasets[numbers.settings.viewpoint[item].dataset]
    return Finding(
        numbers.needed(kind, network, "novel").scaled(100),
        numbers.records,
        remarks=remarks("matrix_capsules", document, numbers.trained[network], dataset, share=FAMILIAR_SHARE),
        notes=notes,
    )


MEASURES: dict[str, Measure] = {
    **{claim: partial(_error, role=row) for claim, row in ROWS.items()},
    "004.t1.cnn": partial(_error, role="cnn"),
    "004.crops": partial(_error, role="crops"),
    "004.small": partial(_error, role="small"),
    "004.mnist": partial(_error, role="mnist"),
    "004.cifar": partial(_error, role="cifar10"),
    "004.t2.az.caps": partial(_novel_capsules, axis="azimuth"),
    "004.t2.az.cnn": partial(_novel_cnn, axis="azimuth"),
    "004.t2.el.caps": partial(_novel_capsules, axis="elevation"),
    "004.t2.el.cnn": partial(_novel_cnn, axis="elevation"),
}


def build(results: Results) -> list[Table]:
    """A table of test errors for each data set, a table of errors on held-out objects, and a table of errors on novel
    viewpoints. In tables of test errors, runs come first, then conditions that are rows of Table 1, then others.
    """
    papers = {claim.id: claim.value for claim in load_claims()}
    rows_of_table, rows = [*ROWS, None], dict[str, list[Row]]()
    conditions = sorted(ablations(results), key=lambda trial: rows_of_table.index(row_of(trial)))
    for trial in (*runs(results, *BOTH), *conditions):
        paper = papers.get(row_of(trial) or "") if trial.dataset.source in SOURCES else None
        changed = ("", "") if trial.stage == "evaluate" else (trial.name, in_words(trial.changes))
        warped = any(trial.run.augmentation.get(name) for name in _WARPS)
        keys: list[object] = [trial.base, *changed, trial.run.variant.replace("_", " ")]
        keys += ["crops and warps" if warped else "crops", trial.run.training.epochs, "" if paper is None else paper]
        rows.setdefault(trial.run.dataset, []).append((keys, cells(trial.numbers, ERRORS, "test"), trial.numbers))
    caption = (
        "Runs, and conditions that change some settings of a run. Test errors are measured on the central crop of an "
        "image, and with scores averaged over 13 crops of the image (activations of capsules, probabilities of the "
        "CNN). The paper's error is that of its network with the same routing and loss, of any size, if there is one."
    )
    head = ["run", "condition", "changed", "network", "trained on", "epochs (at most)", "the paper's error (%)"]
    tables = tables_of("matrix-errors", "Errors of matrix capsules and the CNN", caption, head, ERRORS, rows)
    return [*tables, *_recipes(results), *_viewpoints(results)]


def _recipes(results: Results) -> list[Table]:
    heads = {
        "new": ("error, new objects (%)", 1),
        "known": ("error, known objects (%)", 1),
        "train": ("training error (%)", 1),
    }
    rows: list[Row] = []
    for study, numbers in results.executed("recipe"):
        settings = numbers.settings.recipe[study]
        for condition in numbers.names("condition"):
            parts = settings.conditions.get(condition, {}).values()
            changed = in_words({name: value for part in parts for name, value in part.items()})
            held_out = ", ".join(f"{settings.factor} {value}" for value in settings.held_out)
            epochs = numbers.trained[condition].training.epochs
            keys = [settings.run, condition, changed, held_out, epochs]
            rows.append((keys, cells(numbers, heads, "condition", condition), numbers))
    caption = (
        "Networks trained with some settings of the run changed. New objects: error on the held-out images, after the "
        "last epoch. Known objects: error after the last epoch on the random share of other images that is not "
        "trained on. Training error: mean error on augmented images in the last epoch; it cannot be compared between "
        "conditions with different augmentation or mixup. Each seed and each held-out value has its own network, which "
        "counts as a seed. No test images are used."
    )
    head = ["run", "condition", "changed", "held out", "epochs (at most)"]
    return measured_table("matrix-recipe", "Held-out error after changes in training", caption, head, heads, rows)


def _viewpoints(results: Results) -> list[Table]:
    """A list with one table. Each network of a study has two rows, "matched" and "late", which the caption explains."""
    heads = {"familiar": ("error, familiar (%)", 2), "novel": ("error, novel (%)", 2), "epoch": ("epoch", 1)}
    rows: list[Row] = [
        ([item, numbers.settings.viewpoint[item].axis, kind, words], cells(numbers, heads, kind, network), numbers)
        for item, numbers in results.executed("viewpoint")
        for kind in ("matched", "late")
        for network, words in NETWORKS.items()
    ]
    caption = (
        "Test errors of networks that are trained only on familiar viewpoints. Late: means over the last ten epochs. "
        "Matched: errors when both networks are equally good on familiar viewpoints. For the network that is worse on "
        "familiar viewpoints, these are the late errors. For the better network, these are its errors at the time when "
        "its error on familiar viewpoints first falls to the late error of the worse network."
    )
    keys = ["study", "axis", "comparison", "network"]
    return measured_table("matrix-viewpoints", "Errors on novel viewpoints", caption, keys, heads, rows)
