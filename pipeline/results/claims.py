"""The claims of the documents, listed in `claims.yaml` in this folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import UserError

CLAIMS_FILE = Path(__file__).with_name("claims.yaml")

DOCUMENTS = {
    "000": "Capsule Networks: A Probabilistic Perspective",
    "001": "Capsule Networks as Generative Models",
    "002": "An EM algorithm for capsule regression",
    "003": "Encapsulating Capsule Networks",
    "004": "Matrix capsules with EM routing",
}
"""Titles of the documents, by the number that begins their claims' ids."""


class ClaimsError(UserError):
    """A list of what others published is missing or malformed. The message names the entry and the field."""


Entry = TypeVar("Entry", bound=BaseModel)


class Claim(BaseModel):
    """One claim: a number to reproduce (with a `value`), or a statement that a check confirms or refutes (without)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^\d{3}\.[\w.]+$")
    where: str = Field(description="the place in the document")
    claim: str
    value: float | None = Field(default=None, description="the document's number; accuracies and errors in percent")
    sd: float | None = Field(default=None, gt=0, description="its standard deviation, if the document gives one")
    better: Literal["higher", "lower", "neither"] | None = Field(
        default=None, description="which side of the number is better; neither, of a baseline"
    )
    tolerance: float | None = Field(default=None, gt=0, description="in place of the rule of scorecard.py")
    holds_when: str | None = Field(default=None, description="what the check tests, for a claim without a number")
    unit: str = Field(default="%", description="unit of our number")

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        if (self.value is None) == (self.holds_when is None):
            raise ValueError("a claim has either a value or holds_when")
        if self.value is None and "unit" not in self.model_fields_set:
            raise ValueError("a claim without a value needs the unit of our number")
        if (self.value is None) != (self.better is None):
            raise ValueError("a claim with a value must have better, and one without must not")
        return self

    @property
    def document(self) -> str:
        """The number of the document, such as "000"."""
        return self.id[:3]


def load_claims(path: Path = CLAIMS_FILE) -> list[Claim]:
    """The claims in the file's order.

    Raises:
        ClaimsError: the file is missing or not YAML, or has a malformed claim or a duplicate id.
    """
    claims = load_list(path, Claim)
    twice = [name for name, count in Counter(claim.id for claim in claims).items() if count > 1]
    if twice:
        raise ClaimsError(f"{path}: more than one claim has the id {', '.join(twice)}")
    return claims


def load_list(path: Path, form: type[Entry]) -> list[Entry]:
    """The entries of a file in its order. Raises `ClaimsError` if it is missing, not YAML, or has a malformed entry."""
    try:
        return [form.model_validate(row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
    except (OSError, TypeError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path}: not a list of {path.stem}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ClaimsError(f"{path}: {first['input']!r}: {field} {first['msg']}") from None
