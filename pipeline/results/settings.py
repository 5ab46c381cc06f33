"""The section `evidence` of `params.yaml`. It names the items whose results answer the documents' claims.

A role is a name for evidence that one or more claims need, such as `capsules` in `table_1`, a run of the capsule model.
The profile names an item for each role. If it leaves out a role, the claims that need this role are "not run".
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from pipeline.settings import Name, Section

Roles = dict[str, str]
"""Names of items, by role. The classes below give the section of `params.yaml` that has these items. "networks" is no
section. It stands for the runs in `runs`, and for conditions of studies in `ablation`, named `<study>/<condition>`."""
VARIANTS = {"capsules": "generative", "scae": "scae", "vae": "vae"}
DATASETS = ("mnist", "fashion_mnist")
ROWS = (
    "iterations_1", "iterations_2", "iterations_3", "iterations_5", "vector", "no_coordinates", "vector_no_coordinates",
    "margin", "cross_entropy", "mixing",
)  # fmt: skip


class Role(NamedTuple):
    """A role, and the `item` that the profile names for it. `where` is the role's place in `params.yaml`.

    Attributes:
        section: section of `params.yaml` that has the item, or "networks" (see `Roles`).
        kind: what the item must have: a kind of study, a variant of its run, or an axis of viewpoints. If `kind` is "",
            every item of the section is allowed.
    """

    where: str
    section: str
    kind: str
    item: str


def one(section: str, kind: str = "", **more: Any) -> Any:
    """A pydantic field for one role, with `section` and `kind` as in `Role`. `default=...` makes it required."""
    return Field(**{"default": None, "json_schema_extra": {"section": section, "kind": kind}, **more})


def group(section: str, kinds: Mapping[str, str]) -> Any:
    """A pydantic field for roles whose items are in one section. `kinds` maps each role to its kind (see `Role`)."""
    return Field(default_factory=dict, json_schema_extra={"section": section, "kinds": dict(kinds)})


class GenerativeEvidence(Section):
    """Evidence for document 000. Claims about affNIST use the runs in `affine`, other claims about runs use `table_1`.
    `optimise` names a study of test-time optimisation on rotated images. `optimise_upright` names one on more images,
    all upright. The claim that optimisation raises the accuracy uses `optimise_upright` or, without it, `optimise`.
    """

    table_1: Roles = group("runs", VARIANTS)
    affine: Roles = group("runs", {"capsules": "generative", "vae": "vae"})
    optimise: Name | None = one("optimise")
    optimise_upright: Name | None = one("optimise")
    posterior: Name | None = one("posterior")
    sweep: Roles = group("sweep", VARIANTS)


class MiddleLayer(Section):
    """`inference` names a study of a network with a middle layer, `without` a run of this network without the layer."""

    inference: Name = one("infer", default=...)
    without: Name = one("runs", "capsnet", default=...)


class CapsNetEvidence(Section):
    """Evidence for the claims of document 001 about CapsNet. The role `as_coded` in `inference` names a study of the
    network without routing. Its inference is that of the document's code. The claim about a middle layer is answered by
    the first entry of `middle` that was measured.
    """

    runs: Roles = group("runs", dict.fromkeys(("routed", "unrouted", "routed_margin", "unrouted_margin"), "capsnet"))
    inference: Roles = group("infer", dict.fromkeys(("routed", "unrouted", "as_coded"), ""))
    middle: list[MiddleLayer] = Field(default_factory=list)


class RegressionEvidence(Section):
    """Evidence for document 002. Each field is for one kind of study, and has a role for each of the document's data
    sets. The study that the profile names for a role may use another data set than the role's name says.
    """

    grid: Roles = group("regression", dict.fromkeys(DATASETS, "grid"))
    convergence: Roles = group("regression", dict.fromkeys(DATASETS, "convergence"))
    starts: Roles = group("regression", dict.fromkeys(DATASETS, "starts"))
    exactness: Roles = group("regression", dict.fromkeys(DATASETS, "exactness"))
    online: Roles = group("regression", dict.fromkeys(DATASETS, "online"))
    ridge: Roles = group("regression", dict.fromkeys(DATASETS, "ridge"))
    distorted: Roles = group("regression", dict.fromkeys(DATASETS, "distorted"))


class PosesBesideFeatures(Section):
    """`capsules` names studies of poses. They are compared with `cnn`, a study of a CNN's features on the same data."""

    cnn: Name = one("equivariance", "cnn", default=...)
    capsules: list[Name] = one("equivariance", default=..., min_length=1)


class ComparisonEvidence(Section):
    """Evidence for document 003."""

    equivariance: list[PosesBesideFeatures] = Field(default_factory=list)
    data_efficiency: Roles = group("data_efficiency", {"capsules": "", "cnn": "cnn"})


class MatrixCapsulesEvidence(Section):
    """Evidence for document 004. `crops` names the run for the claim about the error on several crops, `votes` the run
    for Figure 2. `published` names the run with the authors' own settings. It answers no claim, but a figure shows it.
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
    """Yield a `Role` for each role in `section` for which the profile names an item. `where` is the place of `section`
    in `params.yaml`, as a dotted name. Raises `ValueError` if the profile has an unknown role.
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
