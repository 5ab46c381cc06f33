"""The base class and common types of all settings, and functions that compare settings."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_ANGLE = 180.0

Name = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        max_length=100,  # it becomes part of the names of files, which are limited to 255 bytes
        description="lower-case letters, digits and hyphens",
    ),
]

Seed = Annotated[int, Field(ge=0, le=4_000_000_000)]
"""Seed of a random number generator. Replicas use seed, seed + 1, ... All must be below 2^32, scikit-learn's limit."""

Angle = Annotated[float, Field(ge=0, le=MAX_ANGLE, description="degrees: rotations are uniform in [-angle, +angle]")]


def younger(default: Any, **more: Any) -> Any:
    """A pydantic field for a setting that was added after some results were made. With the value `default`, the
    present code does what the code did then. Records leave out a setting with this value, so that these results do
    not become stale.
    """
    return Field(default=default, exclude_if=lambda value: value == default, **more)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one level of dotted names. Lists and scalars stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Settings that differ: (dotted name, value here, value there), in the order of `here`. A missing value is None."""
    here, there = flatten(here), flatten(there)
    keys = [*here, *(key for key in there if key not in here)]
    return [(key, here.get(key), there.get(key)) for key in keys if here.get(key) != there.get(key)]


def check_once(values: list[Any]) -> list[Any]:
    """Return the values unchanged. Raises `ValueError` if a value occurs twice."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} is listed twice")
    return values


def check_distinct(angles: list[float]) -> list[float]:
    """Return the angles unchanged. Raises `ValueError` if two have the same name in results (six digits)."""
    check_once([f"{angle:g}" for angle in angles])
    return angles


Angles = Annotated[list[Angle], Field(min_length=1), AfterValidator(check_distinct)]


class Section(BaseModel):
    """A section of `params.yaml`. Types are strict, values cannot be changed, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False)

    def with_changes(self, changes: Mapping[str, object]) -> Self:
        """The section with the new values in `changes`. Raises `ValidationError` if the result is not valid."""
        return type(self).model_validate({**self.model_dump(), **changes})
