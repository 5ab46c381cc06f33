"""Settings of the ablations of document 004, Table 1."""

from __future__ import annotations

from pydantic import Field

from pipeline.settings import Name, Section


class AblationParams(Section):
    """Conditions of document 004, Table 1: a run of matrix capsules, trained with some settings changed in each."""

    run: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")
    conditions: dict[Name, dict[str, bool | int | float | str | list[int] | dict[str, float]]] = Field(
        min_length=1,
        description="for each condition, the settings of the run's model that it changes; none for the unchanged run",
    )
