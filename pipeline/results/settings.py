"""The section `evidence` of `params.yaml`: it names the items that answer the documents' claims.

A role names evidence that claims need, such as the capsules of Table 1. Claims with the same evidence share a role.
The profile names an item for each role. If the profile leaves out a role, the claims that need it are "not run".
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from pipeline.settings import Name, Section

Roles = dict[str, str]
"""Names of items, by role. The classes below give the section of `params.yaml` that has a role's item. `networks` is no
section: it stands for `runs`, and for the conditions of `ablation`, named `<ablation>/<condition>`."""
VARIANTS = {"capsules": "generative", "scae": "scae", "vae": "vae"}
DATASETS = ("mnist", "fashion_mnist")
ROWS = (
    "iterations_1", "iterations_2", "iterations_3", "iterations_5", "vector", "no_coordinates", "vector_no_coordinates",
    "margin", "cross_entropy", "mixing",
)  # fmt: skip


class Role(NamedTuple):
    """A role, and the `item` that the profile names for it. `where` is the role's place in `params.yaml`.

    Attributes:
        section: section of `params.yaml` that has the item. `networks` means `runs` and the conditions of `ablation`.
        kind: what the item must have: a kind of study, a variant of its run, or an axis of viewpoints. "" allows every
            item.
    """

    where: str
    section: str
    kind: str
    item: str


def one(section: str, kind: str = "", **more: Any) -> Any:
    """A pydantic field for one role (see `Role`). The profile may leave it out, unless `more` has the default `...`."""
    return Field(**{"default": None, "json_schema_extra": {"section": section, "kind": kind}, **more})


def group(section: str, kinds: Mapping[str, str]) -> Any:
    """A pydantic field for several roles of one section. `kinds` has the kind of each role, by the role's name."""
    return Field(default_factory=dict, json_schema_extra={"section": section, "kinds": dict(kinds)})


class GenerativeEvidence(Section):
    """Evidence for document 000. Claims about affNIST use the runs in `affine`, other claims about runs use `table_1`.
    `optimise` names a study of rotated images, `optimise_upright` one of more images, all upright. The claim about the
    gain in accuracy uses `optimise_upright` or, if it is left out, `optimise`.
    """

    table_1: Roles = group("runs", VARIANTS)
    affine: Roles = group("runs", {"capsules": "generative", "vae": "vae"})
    optimise: Name | None = one("optimise")
    optimise_upright: Name | None = one("optimise")
    posterior: Name | None = one("posterior")
    sweep: Roles = group("sweep", VARIANTS)


class MiddleLayer(Section):
    """Inference in a network with a middle layer, and the run of the same network without that layer."""

    inference: Name = one("infer", default=...)
    without: Name = one("runs", "capsnet", default=...)


class CapsNetEvidence(Section):
    """Evidence for the networks of document 001. The role `as_coded` in `inference` is inference as in the document's
    code, in the network without routing. The first measured entry of `middle` answers the claim about a middle layer.
    """

    runs: Roles = group("runs", dict.fromkeys(("routed", "unrouted", "routed_margin", "unrouted_margin"), "capsnet"))
    inference: Roles = group("infer", dict.fromkeys(("routed", "unrouted", "as_coded"), ""))
    middle: list[MiddleLayer] = Field(default_factory=list)


class RegressionEvidence(Section):
    """Evidence for document 002. Each kind of study has a role for each data set of the document. The item that the
    profile names for a role may use another data set.
    """

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
    """Evidence for document 003."""

    equivariance: list[PosesBesideFeatures] = Field(default_factory=list)
    data_efficiency: Roles = group("data_efficiency", {"capsules": "", "cnn": "cnn"})


class MatrixCapsulesEvidence(Section):
    """Evidence for document 004. `crops` names the run for the test error with several crops, `votes` the run for
    Figure 2. `published` names the run with the authors' own settings. No claim rests on it, but its curve is drawn.
    """

    table_1: Roles = group("networks", dict.fromkeys(ROWS, "matrix_capsules"))
    networks: Roles = group("networks", dict.fromkeys(("small", "mnist", "cifar10"), "matrix_capsules"))
    cnn: Name | None = one("runs", "cnn")
    crops: Name | None = one("runs", "matrix_capsules")
    votes: Name | None = one("runs", "matrix_capsules")
    published: Name | None = one("runs", "matrix_capsules")
    viewpoint: Roles = group("viewpoint", {axis: axis for axis in ("azimuth", "elevation")})
    attack: Name | None = one("attack")


class EvidenceParams(Section):
    """The evidence for all claims, by system. `comparison` has the evidence for document 003."""

    generative: GenerativeEvidence = GenerativeEvidence()
    capsnet: CapsNetEvidence = CapsNetEvidence()
    attention: Roles = group("attention", {kind: kind for kind in ("toy", "iterated", "density", "parsing")})
    regression: RegressionEvidence = RegressionEvidence()
    comparison: ComparisonEvidence = ComparisonEvidence()
    matrix_capsules: MatrixCapsulesEvidence = MatrixCapsulesEvidence()


def roles_in(section: Section, where: str = "evidence") -> Iterator[Role]:
    """Yield every role of `section` that has an item. `where` is the dotted place of `section` in `params.yaml`.
    Raises `ValueError` for an unknown role.
    """
    for field, info in type(section).model_fields.items():
        value, place = getattr(section, field), f"{where}.{field}"
        extra: Any = info.json_schema_extra
        if isinstance(value, dict):
            for role, item in value.items():
                if role not in extra["kinds"]:
                    raise ValueError(f"{place}.{role}: unknown role (known: {', '.join(extra['kinds'])})")
                yield Role(f"{place}.{role}", extra["section"], extra["kinds"][role], item)
            continue
        entries = {f"{place}.{i}": each for i, each in enumerate(value)} if isinstance(value, list) else {place: value}
        for at, each in entries.items():
            if isinstance(each, Section):
                yield from roles_in(each, at)
            elif each is not None:
                yield Role(at, extra["section"], extra["kind"], each)
