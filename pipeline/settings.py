"""Base class and common types of all settings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializationInfo, SerializerFunctionWrapHandler, model_serializer

MAX_ANGLE = 180.0

WITHOUT_NEUTRAL = {"neutral": "left out"}
"""Context of `model_dump` that leaves out the fields with their neutral value."""


def neutral(value: bool | float | str | None) -> dict[str, Any]:
    """For `Field(json_schema_extra=...)` of a setting that is younger than published results.

    Args:
        value: with it, everything is as it was before the setting existed. A result that does not have the setting is
            then taken as one with this value.
    """
    return {"neutral": value}


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="lower-case letters, digits and hyphens")]

Angle = Annotated[float, Field(ge=0, le=MAX_ANGLE, description="degrees: rotations are uniform in [-angle, +angle]")]


class Section(BaseModel):
    """A section of `params.yaml`: strict types, immutable, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

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
