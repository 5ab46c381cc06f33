"""Reads the documents' claims, `claims.yaml` in this folder."""

from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

DOCUMENTS = {
    "000": "Capsule Networks: A Probabilistic Perspective",
    "001": "Capsule Networks as Generative Models",
    "002": "An EM algorithm for capsule regression",
    "003": "Encapsulating Capsule Networks",
    "004": "Matrix capsules with EM routing",
}
"""Titles of the documents, by number. The id of a claim begins with the number of its document."""


class Claim(BaseModel):
    """A claim of a document: a number to reproduce (`value`), or a statement that a check confirms or refutes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^\d{3}\.[\w.]+$")
    where: str = Field(description="section, table, figure or equation of the document")
    claim: str
    value: float | None = Field(default=None, description="the document's number; accuracies and errors in percent")
    sd: float | None = Field(default=None, gt=0, description="standard deviation of the document's number, if given")
    better: Literal["higher", "lower", "neither"] | None = Field(
        default=None, description="whether higher or lower numbers are better; neither for a baseline"
    )
    tolerance: float | None = Field(default=None, gt=0, description="used if sd is not given, in place of a default")
    holds_when: str | None = Field(default=None, description="what the check tests, for a claim without a number")
    unit: str = Field(default="%", description="unit of our number")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.value is None) == (self.holds_when is None):
            raise ValueError("a claim must have a value or holds_when, not both")
        if self.value is None and "unit" not in self.model_fields_set:
            raise ValueError("a claim without a value needs the unit of our number")
        if (self.value is None) != (self.better is None):
            raise ValueError("`better` must be given if, and only if, the claim has a value")
        return self

    @property
    def document(self) -> str:
        """The number of the document, such as "000"."""
        return self.id[:3]


def load_claims() -> list[Claim]:
    """The claims, in the order of `claims.yaml`. Raises pydantic's `ValidationError` for a malformed claim."""
    rows = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(list[Claim]).validate_python(rows)
