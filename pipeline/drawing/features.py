"""Colour, marker and name of each set of features that a probe reads, the same in every figure.

Sets of the same model differ in colour and in marker. Looks are not in the module `style`, because the stage
`preprocess` depends on `style`: a new look would re-run this stage.
"""

from typing import NamedTuple

from pipeline.drawing.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION


class Look(NamedTuple):
    """How one set of features is drawn. `name` is plain text, `label` may contain mathematics."""

    name: str
    label: str
    colour: str
    marker: str


FEATURES = {
    "t0": Look("t0", "$t^0$", BLUE, "o"),
    "t0_A0": Look("t0 and A0", "$t^0$ and $A^0$", VERMILLION, "s"),
    "t0_sampled": Look("t0, sampled", "$t^0$, sampled", SKY, "v"),
    "t0_binary": Look("t0, sampled, 0 or 1", "$t^0$, 0 or 1", INK, "<"),
    "mu_sigma": Look("VAE: mu and sigma", r"VAE: $\mu$ and $\sigma$", GREEN, "^"),
    "posterior": Look("SCAE: posterior presences", "SCAE: posterior", ORANGE, "P"),
    "prior": Look("SCAE: prior presences", "SCAE: prior", SKY, "X"),
    "class_capsules": Look("CapsNet: class capsules", "CapsNet: class capsules", SKY, "D"),
    "children": Look("expected children", "expected children", PURPLE, "D"),
}


def look(features: str) -> Look:
    """The look of the set with the key `features`. A set without a look is drawn in `INK` and labelled with its key."""
    return FEATURES.get(features, Look(features, features, INK, "v"))
