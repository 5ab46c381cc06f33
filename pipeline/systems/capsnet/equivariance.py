"""The layers of a CapsNet whose equivariance is measured: class capsules, and their lengths (presences).

Class capsules are meant to represent poses (document 001, section 2). A vote for a class capsule may be any linear map
of a capsule below. So theory does not say how class capsules change when the image moves. Lengths should not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, plain
from pipeline.systems.capsnet.model.capsnet import CapsNet


def read(model: CapsNet, images: Tensor) -> dict[str, Layer]:
    """Layers by name, for images `[B, 1, S, S]` in [0, 1]: "capsules", and "presences" (their lengths)."""
    capsules = model.encode(images)
    lengths = capsules.norm(dim=-1)
    return {"capsules": Layer(capsules, lengths, None), "presences": plain(lengths.unsqueeze(1), None, False)}
