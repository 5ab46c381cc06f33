"""Which item answers which claims: the section `evidence` of `params.yaml`.

A role is a kind of evidence, such as the capsules of Table 1; claims on the same evidence share a role. For each role,
the profile names one item; claims whose role is left out are "not run".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from pipeline.settings import Name, Section

Roles = dict[str, str]
"""Names of items by role: keys of a section; for `networks`, a run or a condition, <ablation>/<condition>."""
VARIANTS = {"capsules": "generative", "scae": "scae", "vae": "vae"}
DATASETS = ("mnist", "fashion_mnist")
KINDS = ("toy", "iterated", "density", "parsing")
ROWS = (
    "iterations_1", "iterations_2", "iterations_3", "iterations_5", "vector", "no_coordinates", "vector_no_coordinates",
    "margin", "cross_entropy", "mixing",
)  # fmt: skip


class Role(NamedTuple):
    """A role that is filled, its place `where` in `params.yaml`, and the item that it names.

    Attributes:
        section: section of `params.yaml` that has the item; `networks`: runs, and conditions of `ablation`.
        kind: what the item must be: variant of a run, kind of a study, or axis of viewpoints; "": any; None: there is
            no such role.
    """

    where: str
    section: str
    kind: str | None
    item: str


def one(section: str, kind: str = "", **more: Any) -> Any:
    """The field of a role, which is left out by default (see `Role`)."""
    return Field(**{"default": None, "json_schema_extra": {"section": section, "kind": kind}, **more})


def group(section: str, kinds: Mapping[str, str]) -> Any:
    """The field of several roles in one section, with the kind of each role."""
    return Field(default_factory=dict, json_schema_extra={"section": section, "kinds": dict(kinds)})


class GenerativeEvidence(Section):
    """Document 000. `affine`: runs for affNIST, whose digits are shifted; `table_1`: runs for all other claims.
    `optimise_upright`: for the gain in accuracy, which needs many upright images; `optimise`: for all rotations.
    """

    table_1: Roles = group("runs", VARIANTS)
    affine: Roles = group("runs", VARIANTS)
    optimise: Name | None = one("optimise")
    optimise_upright: Name | None = one("optimise")
    posterior: Name | None = one("posterior")
    sweep: Roles = group("sweep", VARIANTS)


class MiddleLayer(Section):
    """Inference in a network with a middle layer, and the run of the same network without that layer."""

    inference: Name = one("infer", default=...)
    without: Name = one("runs", "capsnet", default=...)


class CapsNetEvidence(Section):
    """Document 001, networks. The first entry of `middle` is judged; notes report the other entries."""

    runs: Roles = group("runs", dict.fromkeys(("routed", "unrouted", "routed_margin", "unrouted_margin"), "capsnet"))
    inference: Roles = group("infer", dict.fromkeys(("routed", "unrouted"), ""))
    middle: list[MiddleLayer] = Field(default_factory=list)


class RegressionEvidence(Section):
    """Document 002: for each kind of study, a study on each of the document's data sets, or on a substitute."""

    grid: Roles = group("regression", dict.fromkeys(DATASETS, "grid"))
    convergence: Roles = group("regression", dict.fromkeys(DATASETS, "convergence"))
    starts: Roles = group("regression", dict.fromkeys(DATASETS, "starts"))
    exactness: Roles = group("regression", dict.fromkeys(DATASETS, "exactness"))
    online: Roles = group("regression", dict.fromkeys(DATASETS, "online"))
    ridge: Roles = group("regression", dict.fromkeys(DATASETS, "ridge"))
    distorted: Roles = group("regression", dict.fromkeys(DATASETS, "distorted"))


class PosesBesideFeatures(Section):
    """Capsules whose poses are compared with the features of a convolutional network on the same data."""

    cnn: Name = one("equivariance", "cnn", default=...)
    capsules: list[Name] = one("equivariance", default=..., min_length=1)


class ComparisonEvidence(Section):
    """Document 003."""

    equivariance: list[PosesBesideFeatures] = Field(default_factory=list)
    data_efficiency: Roles = group("data_efficiency", {"capsules": "", "cnn": "cnn"})


class MatrixCapsulesEvidence(Section):
    """Document 004. `crops`: the run whose scores are averaged over crops; `votes`: the run of Figure 2."""

    table_1: Roles = group("networks", dict.fromkeys(ROWS, "matrix_capsules"))
    networks: Roles = group("networks", dict.fromkeys(("small", "mnist", "cifar10"), "matrix_capsules"))
    cnn: Name | None = one("runs", "cnn")
    crops: Name | None = one("runs", "matrix_capsules")
    votes: Name | None = one("runs", "matrix_capsules")
    viewpoint: Roles = group("viewpoint", {axis: axis for axis in ("azimuth", "elevation")})
    attack: Name | None = one("attack")


class EvidenceParams(Section):
    """The evidence of all claims, by the systems that the documents are about."""

    generative: GenerativeEvidence = GenerativeEvidence()
    capsnet: CapsNetEvidence = CapsNetEvidence()
    attention: Roles = group("attention", {kind: kind for kind in KINDS})
    regression: RegressionEvidence = RegressionEvidence()
    comparison: ComparisonEvidence = ComparisonEvidence()
    matrix_capsules: MatrixCapsulesEvidence = MatrixCapsulesEvidence()


def roles_in(section: Section, where: str = "evidence") -> Iterator[Role]:
    """Every role that is filled in a section, which stands at `where` in `params.yaml`."""
    for field, info in type(section).model_fields.items():
        value, place = getattr(section, field), f"{where}.{field}"
        extra: Any = info.json_schema_extra
        if isinstance(value, dict):
            for role, item in value.items():
                yield Role(f"{place}.{role}", extra["section"], extra["kinds"].get(role), item)
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Section):
                yield from roles_in(each, place)
            elif each is not None:
                yield Role(place, extra["section"], extra["kind"], each)
