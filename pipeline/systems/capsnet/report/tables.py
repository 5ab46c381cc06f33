"""Tables of CapsNet and of iterative inference in it (document 001)."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.reading import Numbers, Results
from pipeline.systems.capsnet.report.runs import evaluated, studies

_ACCURACIES = {
    "accuracy": ("own answer (%)", ("test", "accuracy"), 2),
    "rotated_0": ("probe, 0° (%)", ("probe", "class_capsules", "refit", "rotated_0"), 1),
    "rotated_180": ("probe, ±180° (%)", ("probe", "class_capsules", "refit", "rotated_180"), 1),
    "affine": ("probe, affine (%)", ("probe", "class_capsules", "refit", "affine"), 1),
    "affine_fixed": ("fixed probe, affine (%)", ("probe", "class_capsules", "fixed", "affine"), 1),
}
"""By column: heading, keys of the share, decimals."""
_SPARSITY = {
    "hoyer": ("Hoyer's index", 3),
    "hoyer_standard_error": ("standard error", 3),
    "entropy": ("entropy (nats)", 3),
    "effective_number": ("effective capsules", 2),
    "silent": ("silent (%)", 1),
    "saturated": ("saturated (%)", 1),
    "length_sd": ("sd of lengths", 3),
    "hoyer_inputs": ("index before squash", 3),
    "right": ("correct (%)", 1),
    "length_right": ("length, own class", 3),
    "length_others": ("length, others", 3),
    "energy": ("energy", 4),
    "falls": ("falls (%)", 1),
    "last_drop": ("last drop (%)", 1),
}
_IN_PERCENT = ("silent", "saturated", "right", "falls", "last_drop")


def build(results: Results) -> list[Table]:
    """For each data set a table of the evaluated networks and one of iterative inference in them."""
    return [*_accuracies(results), *_sparsity(results)]


def _accuracies(results: Results) -> list[Table]:
    """Accuracy of each network, and of a linear probe on its class capsules."""
    rows: dict[str, list[Row]] = {}
    for network in evaluated(results):
        model, numbers = network.run.model, network.numbers
        iterations = f"{model.iterations} {model.counting}" if model.iterations else "0"
        of_run: list[object] = [network.item, iterations, model.reconstruction, str(model.middle)]
        found = {column: numbers.measured(*where) for column, (_, where, _) in _ACCURACIES.items()}
        shares = {column: each.scaled(100) if each else None for column, each in found.items()}
        rows.setdefault(network.run.dataset, []).append((of_run, shares, numbers))
    heads = {column: (words, digits) for column, (words, _, digits) in _ACCURACIES.items()}
    caption = (
        "Test accuracy with the longest class capsule as the answer, and of a linear probe on all class capsules of "
        "rotated or affinely warped test images (refit on equally warped training images; fixed: fit on clean ones)."
    )
    keys = ["run", "iterations", "reconstruction", "middle capsules"]
    return _by_dataset("capsnet", "CapsNet with and without routing", caption, keys, heads, rows)


def _sparsity(results: Results) -> list[Table]:
    """How sparse capsules are before and after iterative inference, and whether the correct one is longest."""
    rows: dict[str, list[Row]] = {}
    for study in studies(results):
        rows.setdefault(study.run.dataset, []).extend(_conditions(study.item, study.numbers))
    caption = (
        "Sparsity of the lengths of a layer's capsules, as means over images. Hoyer's index is 1 if a single capsule "
        "is active and 0 if all have the same length; silent: share of images without an active capsule; after forward "
        "passes also the share of saturated capsules (longer than 0.9, where the squash makes lengths alike), the sd "
        "of an image's lengths, and the index of the lengths before the squash. Conditions: "
        "the forward pass of all test images (forward), of those used for inference (start), and after inference, "
        "named by class capsules (predicted from the layer below, or free), label, penalty and its weight. Correct: "
        "share of images whose longest class capsule is that of their class. Falls: share of images whose energy never "
        "rose. Last drop: fall of the energy over the last tenth of the steps."
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
