"""Settings of logistic regression."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.classification.settings import CroppedRun
from pipeline.settings import Section


class LinearModelParams(Section):
    """A linear map from pixels to classes."""

    classes: int = Field(ge=2, le=1000, description="number of outputs")


class LinearRun(CroppedRun):
    """A run of logistic regression."""

    variant: Literal["linear"]
    model: LinearModelParams

    @property
    def channels(self) -> int:
        """Images are grey."""
        return 1
