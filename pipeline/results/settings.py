"""Which item answers which claims: the section `evidence` of `params.yaml`.

A role is a part that claims name, such as the capsules of Table 1, and claims on the same evidence share one. A role
names one item of the profile, or none: claims that need it are then "not run".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pipeline.settings import NAME_PATTERN, Name, Section


@dataclass(frozen=True)
class Named:
    """What a role, or every role of a group, may name.

    Attributes:
        section: of `params.yaml`: items are its keys. `networks`: runs, and conditions of `ablation`.
        kind: variant of the run, kind of the study, or axis of the viewpoints that it must be; empty: any.
    """

    section: str
    kind: str = ""


Item = Name | None
Network = Annotated[
    str,
    Field(
        pattern=f"{NAME_PATTERN[:-1]}(/{NAME_PATTERN[1:-1]})?$",
        max_length=201,
        description="a key of `runs`, or a condition: <ablation>/<condition>",
    ),
]


class Compared(Section):
    """Runs whose features are probed side by side (document 000)."""

    capsules: Annotated[Item, Named("runs", "generative")] = None
    scae: Annotated[Item, Named("runs", "scae")] = None
    vae: Annotated[Item, Named("runs", "vae")] = None


class Swept(Section):
    """Runs of the sweep over rotations (document 000, Figures 4 and 7), and two that differ in their slots alone."""

    capsules: Annotated[Item, Named("sweep", "generative")] = None
    scae: Annotated[Item, Named("sweep", "scae")] = None
    vae: Annotated[Item, Named("sweep", "vae")] = None
    own_slots: Annotated[Item, Named("sweep", "generative")] = None
    any_slots: Annotated[Item, Named("sweep", "generative")] = None


class GenerativeEvidence(Section):
    """Document 000. The runs `affine` answer for affNIST, whose digits are shifted, those of `table_1` for the rest."""

    table_1: Compared = Compared()
    affine: Compared = Compared()
    optimise: Annotated[Item, Named("optimise")] = None
    posterior: Annotated[Item, Named("posterior")] = None
    sweep: Swept = Swept()


class Inferred(Section):
    """Iterative inference in networks with routing and without (document 001, Figure 1)."""

    routed: Item = None
    unrouted: Item = None


class MiddleLayer(Section):
    """Inference in a network with a middle layer, and the run of the same network without that layer."""

    inference: Annotated[Name, Named("infer")]
    without: Annotated[Name, Named("runs", "capsnet")]


class CapsNetEvidence(Section):
    """Document 001, networks. Of several middle layers the first is judged; notes tell of the others."""

    routed: Annotated[Item, Named("runs", "capsnet")] = None
    unrouted: Annotated[Item, Named("runs", "capsnet")] = None
    routed_margin: Annotated[Item, Named("runs", "capsnet")] = None
    unrouted_margin: Annotated[Item, Named("runs", "capsnet")] = None
    inference: Annotated[Inferred, Named("infer")] = Inferred()
    middle: list[MiddleLayer] = Field(default_factory=list)


class AttentionEvidence(Section):
    """Document 001, studies of top-down attention."""

    toy: Annotated[Item, Named("attention", "toy")] = None
    iterated: Annotated[Item, Named("attention", "iterated")] = None
    density: Annotated[Item, Named("attention", "density")] = None
    parsing: Annotated[Item, Named("attention", "parsing")] = None


class BothSets(Section):
    """A study on each of document 002's data sets, or on what stands in for it."""

    mnist: Item = None
    fashion_mnist: Item = None


class RegressionEvidence(Section):
    """Document 002, by kind of study."""

    grid: Annotated[BothSets, Named("regression", "grid")] = BothSets()
    convergence: Annotated[BothSets, Named("regression", "convergence")] = BothSets()
    starts: Annotated[BothSets, Named("regression", "starts")] = BothSets()
    exactness: Annotated[BothSets, Named("regression", "exactness")] = BothSets()
    online: Annotated[BothSets, Named("regression", "online")] = BothSets()
    ridge: Annotated[BothSets, Named("regression", "ridge")] = BothSets()
    distorted: Annotated[BothSets, Named("regression", "distorted")] = BothSets()


class PosesBesideFeatures(Section):
    """Capsules whose poses are compared with the features of a convolutional network on the same data."""

    cnn: Annotated[Name, Named("equivariance", "cnn")]
    capsules: Annotated[list[Name], Named("equivariance")] = Field(min_length=1)


class FewerImages(Section):
    """Two networks trained on shares of the same images."""

    capsules: Annotated[Item, Named("data_efficiency")] = None
    cnn: Annotated[Item, Named("data_efficiency", "cnn")] = None


class ComparisonEvidence(Section):
    """Document 003."""

    equivariance: list[PosesBesideFeatures] = Field(default_factory=list)
    data_efficiency: FewerImages = FewerImages()


class Viewpoints(Section):
    """Document 004, Table 2."""

    azimuth: Annotated[Item, Named("viewpoint", "azimuth")] = None
    elevation: Annotated[Item, Named("viewpoint", "elevation")] = None


class Table1(Section):
    """Document 004, Table 1 and section 5: a network for each row."""

    iterations_1: Network | None = None
    iterations_2: Network | None = None
    iterations_3: Network | None = None
    iterations_5: Network | None = None
    vector: Network | None = None
    no_coordinates: Network | None = None
    vector_no_coordinates: Network | None = None
    margin: Network | None = None
    cross_entropy: Network | None = None
    mixing: Network | None = None


class MatrixCapsulesEvidence(Section):
    """Document 004. `crops`: the run whose scores are averaged over crops; `votes`: that of Figure 2."""

    table_1: Annotated[Table1, Named("networks", "matrix_capsules")] = Table1()
    cnn: Annotated[Item, Named("runs", "cnn")] = None
    crops: Annotated[Item, Named("runs", "matrix_capsules")] = None
    small: Annotated[Network | None, Named("networks", "matrix_capsules")] = None
    mnist: Annotated[Network | None, Named("networks", "matrix_capsules")] = None
    cifar10: Annotated[Network | None, Named("networks", "matrix_capsules")] = None
    votes: Annotated[Item, Named("runs", "matrix_capsules")] = None
    viewpoint: Viewpoints = Viewpoints()
    attack: Annotated[Item, Named("attack")] = None


class EvidenceParams(Section):
    """The evidence of all claims, by the systems that the documents are about."""

    generative: GenerativeEvidence = GenerativeEvidence()
    capsnet: CapsNetEvidence = CapsNetEvidence()
    attention: AttentionEvidence = AttentionEvidence()
    regression: RegressionEvidence = RegressionEvidence()
    comparison: ComparisonEvidence = ComparisonEvidence()
    matrix_capsules: MatrixCapsulesEvidence = MatrixCapsulesEvidence()

    def roles(self) -> Iterator[tuple[str, Named, str]]:
        """Every role that names an item: where it stands, what it may name, and the name."""
        return _roles(self, "evidence", None)


def _roles(section: Section, where: str, outer: Named | None) -> Iterator[tuple[str, Named, str]]:
    for field, info in type(section).model_fields.items():
        named = next((each for each in info.metadata if isinstance(each, Named)), outer)
        value = getattr(section, field)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Section):
                yield from _roles(each, f"{where}.{field}", named)
            elif each is not None:
                assert named is not None, f"{where}.{field} does not say what it may name"
                yield f"{where}.{field}", named, each
