"""Base class and common types of all settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

MAX_ANGLE = 180.0

WITHOUT_NEUTRAL = {"neutral": "left out"}
"""Context of `model_dump` that leaves out the fields with their neutral value."""
WITH_NEUTRAL = {"neutral": "filled in"}
"""Context of validation, of settings that may be older than some fields: those then have their neutral value."""


def neutral(value: bool | float | str | None) -> dict[str, Any]:
    """For `Field(json_schema_extra=...)` of a setting that is younger than published results.

    Args:
        value: with it, everything is as it was before the setting existed. A result that does not have the setting is
            then taken as one with this value.
    """
    return {"neutral": value}


NAME_PATTERN = r"^[a-z0-9][a-z0-9-]*$"
Name = Annotated[
    str,
    Field(
        pattern=NAME_PATTERN,
        max_length=100,  # it becomes part of the names of files, which systems limit to 255 bytes
        description="lower-case letters, digits and hyphens",
    ),
]

Seed = Annotated[int, Field(ge=0, le=4_000_000_000)]
"""Of a random number generator. The largest leaves room below 2^32, scikit-learn's limit, for one seed per replica."""

Angle = Annotated[float, Field(ge=0, le=MAX_ANGLE, description="degrees: rotations are uniform in [-angle, +angle]")]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one level of dotted names; lists and scalars stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def check_once(names: list[str]) -> list[str]:
    """Names as they are. ValueError if one stands twice."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is listed twice")
    return names


def check_distinct(angles: list[float]) -> list[float]:
    """Angles as they are. ValueError if two have the same name: results are named by six digits of an angle."""
    check_once([f"{angle:g}" for angle in angles])
    return angles


Angles = Annotated[list[Angle], Field(min_length=1), AfterValidator(check_distinct)]


class Section(BaseModel):
    """A section of `params.yaml`: strict types, immutable, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False)

    gone: ClassVar[frozenset[str]] = frozenset()
    """Fields of older settings that are no more, because they changed nothing."""

    @model_validator(mode="before")
    @classmethod
    def _with_neutral(cls, values: Any, info: ValidationInfo) -> Any:
        """With the context `WITH_NEUTRAL`, fill in the fields that have a neutral value and leave out those gone."""
        if info.context is not WITH_NEUTRAL or not isinstance(values, dict):
            return values
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        older = {
            name: extra["neutral"] for name, extra in extras.items() if isinstance(extra, dict) and "neutral" in extra
        }
        return older | {name: value for name, value in values.items() if name not in cls.gone}

    @model_serializer(mode="wrap")
    def _without_neutral(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """With the context `WITHOUT_NEUTRAL`, leave out the fields that have their neutral value."""
        values: dict[str, Any] = dump(self)
        if info.context is not WITHOUT_NEUTRAL:
            return values
        return {name: value for name, value in values.items() if not self._is_neutral(name, value)}

    def _is_neutral(self, name: str, value: Any) -> bool:
        extra = type(self).model_fields[name].json_schema_extra
        return isinstance(extra, dict) and "neutral" in extra and extra["neutral"] == value
