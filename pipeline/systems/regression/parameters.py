"""Checks of the parameters of the estimator of capsule regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def _is_number(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether a value is a finite real number in a range; True and False are not."""
    return (
        isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and low <= float(value) <= high
    )


def _is_count(value: Any) -> bool:
    """Whether a value is an integer of at least 1; True is not, and 2.0 is not either."""
    return isinstance(value, Integral) and _is_number(value, 1)


def _are_all(test: Callable[[Any], bool], values: Any) -> bool:
    """Whether values are a list, tuple or array of one dimension, with one value at least, that all pass a test."""
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str)
    is_vector = isinstance(values, np.ndarray) and values.ndim == 1
    return (is_sequence or is_vector) and len(values) > 0 and all(map(test, values))


def _is_one_of(*choices: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(choices)}"


def _is_between(low: float, high: float) -> tuple[Callable[[Any], bool], str]:
    return lambda value: _is_number(value, low, high), f"a number from {low:g} to {high:g}"


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "capsule_size": (
        lambda sizes: (
            _is_count(sizes) or _are_all(_is_count, [*sizes.values()] if isinstance(sizes, Mapping) else sizes)
        ),
        "an integer of at least 1, a sequence of such in the order of the sorted classes, or a dictionary by class",
    ),
    "decision": _is_one_of("multiclass", "one-vs-all", "all-vs-all"),
    "class_weight": (
        lambda weight: (
            weight is None
            or (isinstance(weight, str) and weight == "balanced")
            or (isinstance(weight, Mapping) and all(_is_number(each, 0) for each in weight.values()))
        ),
        "None, 'balanced' or a dictionary of numbers of at least 0 by class",
    ),
    "fit_intercept": (lambda value: isinstance(value, bool), "True or False"),
    "ridge": _is_between(0, math.inf),
    "momentum": _is_between(0, 0.999),
    "thresholds": (
        lambda values: _are_all(lambda nu: _is_number(nu, 0, 1), values),
        "a sequence of numbers, each from 0 to 1",
    ),
    "patience": (lambda values: _are_all(_is_count, values), "a sequence of integers, each 1 or more"),
    "max_iter": (_is_count, "an integer of at least 1"),
    "validation_fraction": _is_between(0, 0.9),
    "start": _is_one_of("subspace", "random"),
    "start_sd": _is_between(1e-12, math.inf),
    "online_rate": _is_between(0.5, 1),
    "dtype": _is_one_of("float32", "float64"),
}


def check_parameters(values: Mapping[str, Any]) -> None:
    """Check each parameter of the estimator by itself, without data.

    Raises:
        ValueError: a parameter has a value of another type or out of its range; the message names all of them.
    """
    wrong = [
        f"{name} is {values[name]!r}: {words} is needed"
        for name, (is_allowed, words) in _ALLOWED.items()
        if not is_allowed(values[name])
    ]
    if not wrong and len(values["thresholds"]) != len(values["patience"]):
        wrong = ["thresholds and patience must be as many"]
    if wrong:
        raise ValueError("; ".join(wrong))


def sizes_of_classes(capsule_size: Any, classes: Sequence[Any]) -> list[int]:
    """The capsule size of each class, in the order of `classes`.

    Args:
        capsule_size: a parameter that has passed `check_parameters`.

    Raises:
        ValueError: there is no size for a class, or another number of sizes than classes.
    """
    if isinstance(capsule_size, Mapping):
        missing = [label for label in classes if label not in capsule_size]
        if missing:
            raise ValueError(f"capsule_size has no entry for {missing}")
        return [int(capsule_size[label]) for label in classes]
    sizes = [int(size) for size in ([capsule_size] * len(classes) if _is_count(capsule_size) else capsule_size)]
    if len(sizes) != len(classes):
        raise ValueError(f"capsule_size is {sizes}: {len(classes)} sizes, one for each class, are needed")
    return sizes
