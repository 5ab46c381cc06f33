"""Tables of CapsNet and of iterative inference in it (document 001)."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.drawing.drawings import Written
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.reading import Numbers, Results
from pipeline.systems.capsnet.report.runs import networks, studies

_ACCURACIES = {
    "accuracy": ("own answer (%)", ("test", "accuracy"), 2),
    "rotated_0": ("probe, 0° (%)", ("probe", "class_capsules", "refit", "rotated_0"), 1),
    "rotated_180": ("probe, ±180° (%)", ("probe", "class_capsules", "refit", "rotated_180"), 1),
    "affine": ("probe, affine (%)", ("probe", "class_capsules", "refit", "affine"), 1),
    "affine_fixed": ("fixed probe, affine (%)", ("probe", "class_capsules", "fixed", "affine"), 1),
}
"""By column: heading, where the share stands, digits."""
_SPARSITY = {
    "hoyer": ("Hoyer's index", 3),
    "hoyer_standard_error": ("standard error", 3),
    "entropy": ("entropy (nats)", 3),
    "effective_number": ("effective capsules", 2),
    "silent": ("silent (%)", 1),
    "right": ("right (%)", 1),
    "length_right": ("length, own class", 3),
    "length_others": ("length, others", 3),
    "energy": ("energy", 4),
    "falls": ("falls (%)", 1),
    "last_drop": ("last drop (%)", 1),
}
_IN_PERCENT = ("silent", "right", "falls", "last_drop")


def build(results: Results, written: Written) -> list[Table]:
    """Tables of the networks that were evaluated, and of iterative inference in them, one for each data set."""
    return [*_accuracies(results), *_sparsity(results)]


def _accuracies(results: Results) -> list[Table]:
    """What each network answers, and what a linear probe reads off its class capsules."""
    rows: dict[str, list[Row]] = {}
    for network in networks(results, "evaluate"):
        model, numbers = network.run.model, network.numbers
        iterations = f"{model.iterations} {model.counting}" if model.iterations else "0"
        of_run: list[object] = [network.item, iterations, model.reconstruction, str(model.middle)]
        found = {column: numbers.measured(*where) for column, (_, where, _) in _ACCURACIES.items()}
        shares = {column: each.scaled(100) if each else None for column, each in found.items()}
        rows.setdefault(network.run.dataset, []).append((of_run, shares, numbers))
    heads = {column: (words, digits) for column, (words, _, digits) in _ACCURACIES.items()}
    caption = (
        "Test accuracy: of the longest class capsule, and of a linear probe on all class capsules of test images "
        "turned or warped affinely (refit on equally warped training images; fixed: fit on clean ones)."
    )
    keys = ["run", "iterations", "reconstruction", "middle capsules"]
    return _by_dataset("capsnet", "CapsNet with and without routing", caption, keys, heads, rows)


def _sparsity(results: Results) -> list[Table]:
    """How sparse capsules are before and after iterative inference, and whether the right one is longest."""
    rows: dict[str, list[Row]] = {}
    for study in studies(results):
        rows.setdefault(study.run.dataset, []).extend(_conditions(study.item, study.numbers))
    caption = (
        "Of the lengths of a layer's capsules, means over images: Hoyer's index is 1 where a single capsule is active "
        "and 0 where all are alike; silent are images without an active capsule. Conditions: the forward pass of all "
        "test images, that of those inferred (start), and after inference by what class capsules are (predicted from "
        "the layer below, or free), label, penalty and its weight. Right: share of images whose longest class capsule "
        "is that of their class. Falls: share of images whose energy never rose; last drop: of the energy over the "
        "last tenth of the steps."
    )
    keys = ["study", "condition", "layer", "images"]
    return _by_dataset("sparsity", "Sparsity before and after iterative inference", caption, keys, _SPARSITY, rows)


def _by_dataset(
    name: str, title: str, caption: str, keys: list[str], heads: dict[str, tuple[str, int]], rows: dict[str, list[Row]]
) -> list[Table]:
    """A table of the rows of each data set."""
    return [
        table
        for dataset, each in rows.items()
        for table in measured_table(f"{name}-{dataset}", f"{title}, {dataset}", caption, keys, heads, each)
    ]


def _conditions(study: str, numbers: Numbers) -> Iterator[Row]:
    for condition in numbers.names("condition"):
        for layer in numbers.names("condition", condition):
            found = {name: numbers.measured("condition", condition, layer, name) for name in ("images", *_SPARSITY)}
            images = found.pop("images")
            shown = {name: each.scaled(100) if each and name in _IN_PERCENT else each for name, each in found.items()}
            yield [study, condition, layer, f"{images.mean:.0f}" if images else ""], shown, numbers
