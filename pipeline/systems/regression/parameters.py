"""Checks of the parameters of the estimator of capsule regression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pipeline.systems.regression.estimator import CapsuleRegression

_CHOICES = {
    "decision": ("multiclass", "one-vs-all", "all-vs-all"),
    "start": ("subspace", "random"),
    "dtype": ("float32", "float64"),
    "fit_intercept": (True, False),
}
_RANGES: dict[str, tuple[float, float]] = {
    "ridge": (0, math.inf),
    "momentum": (0, 0.999),
    "validation_fraction": (0, 0.9),
    "start_sd": (1e-12, math.inf),
    "online_rate": (0.5, 1),
}
_SIZES = "an integer of at least 1, a sequence of such in the order of the sorted classes, or a dictionary by class"


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and math.isfinite(value)


def is_count(value: object) -> bool:
    """Whether a value is an integer of at least 1; True is not, and 2.0 is not either."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_parameters(estimator: CapsuleRegression) -> None:
    """Check each parameter by itself, without data.

    Raises:
        ValueError: a parameter has a value of another type or out of its range; the message names all of them.
    """
    values = estimator.get_params(deep=False)
    wrong = [
        f"{name} is {values[name]!r}: {_listed(allowed)}"
        for name, allowed in _CHOICES.items()
        if not any(values[name] is each or (isinstance(each, str) and values[name] == each) for each in allowed)
    ]
    wrong += [
        f"{name} is {values[name]!r}: a number from {low:g} to {high:g}"
        for name, (low, high) in _RANGES.items()
        if not is_number(values[name]) or not low <= values[name] <= high
    ]
    if not is_count(values["max_iter"]):
        wrong.append(f"max_iter is {values['max_iter']!r}: an integer of at least 1")
    wrong += _wrong_rounds(values["thresholds"], values["patience"])
    wrong += _wrong_sizes(values["capsule_size"])
    wrong += _wrong_class_weight(values["class_weight"])
    if wrong:
        raise ValueError("; ".join(wrong))


def sizes_of_classes(capsule_size: Any, classes: Sequence[Any]) -> int | list[int]:
    """The capsule size of all classes, or one for each, in the order of `classes`.

    Args:
        capsule_size: a parameter that has passed `check_parameters`.

    Raises:
        ValueError: there is no size for a class, or another number of sizes than classes.
    """
    if is_count(capsule_size):
        return int(capsule_size)
    if isinstance(capsule_size, Mapping):
        missing = [label for label in classes if label not in capsule_size]
        if missing:
            raise ValueError(f"capsule_size has no entry for {missing}")
        return [int(capsule_size[label]) for label in classes]
    sizes = [int(size) for size in capsule_size]
    if len(sizes) != len(classes):
        raise ValueError(f"capsule_size is {sizes}: {len(classes)} sizes, one for each class, are needed")
    return sizes


def _wrong_sizes(sizes: Any) -> list[str]:
    message = f"capsule_size is {sizes!r}: {_SIZES}"
    if isinstance(sizes, Mapping):
        each: Iterable[Any] = sizes.values()
    elif _is_sequence(sizes):
        each = sizes
    else:
        return [] if is_count(sizes) else [message]
    return [] if len(sizes) and all(is_count(size) for size in each) else [message]


def _wrong_rounds(thresholds: Any, patience: Any) -> list[str]:
    wrong = []
    if not _is_sequence(thresholds) or not all(is_number(nu) and 0 <= nu <= 1 for nu in thresholds):
        wrong.append(f"thresholds are {thresholds!r}: a sequence of numbers, each from 0 to 1")
    if not _is_sequence(patience) or not all(is_count(each) for each in patience):
        wrong.append(f"patience is {patience!r}: a sequence of integers, each 1 or more")
    if not wrong and (len(thresholds) != len(patience) or not len(thresholds)):
        wrong.append("thresholds and patience must be as many, and one at least")
    return wrong


def _wrong_class_weight(weight: Any) -> list[str]:
    if isinstance(weight, Mapping):
        right = all(is_number(each) and each >= 0 for each in weight.values())
    else:
        right = weight is None or (isinstance(weight, str) and weight == "balanced")
    allowed = "None, 'balanced' or a dictionary of numbers of at least 0 by class"
    return [] if right else [f"class_weight is {weight!r}: {allowed}"]


def _is_sequence(values: Any) -> bool:
    """Whether values are a sequence of numbers: a list, a tuple or an array of one dimension."""
    return (isinstance(values, Sequence) and not isinstance(values, str)) or (
        isinstance(values, np.ndarray) and values.ndim == 1
    )


def _listed(values: Sequence[object]) -> str:
    *first, last = map(repr, values)
    return f"{', '.join(first)} or {last}"
