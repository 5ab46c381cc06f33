"""Test errors that others published of networks like ours, by images seen in training: `public_curves.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.results.claims import load_list

CURVES_FILE = Path(__file__).with_name("public_curves.yaml")

OFF_A_PLOT = "read off a plot"

_Positive = Annotated[float, Field(gt=0)]
_Percent = Annotated[float, Field(gt=0, le=100)]


class PublicCurve(BaseModel):
    """The errors of one network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="short, as a figure's label")
    source: str = Field(min_length=1, description="paper, repository, and the place in it")
    parameters: int | None = Field(gt=0, description="of the network; null where the source does not give them")
    iterations: int | None = Field(gt=0, description="of routing; null where the source does not give them")
    read: Literal["printed", "log", "read off a plot"] = Field(description="how the points were read")
    points: list[tuple[_Positive, _Percent]] = Field(
        min_length=1, description="images seen in training, in millions, and test error in percent"
    )
    note: str = ""


def load_public_curves(path: Path = CURVES_FILE) -> list[PublicCurve]:
    """The curves in the file's order. Raises `ClaimsError` as `load_list`."""
    return load_list(path, PublicCurve)
