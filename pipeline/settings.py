"""Base class and common types of all settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_ANGLE = 180.0

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="lower-case letters, digits and hyphens")]

Angle = Annotated[float, Field(ge=0, le=MAX_ANGLE, description="degrees: rotations are uniform in [-angle, +angle]")]


class Section(BaseModel):
    """A section of `params.yaml`: strict types, immutable, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())
