"""The layers whose equivariance is measured, and how a transformation should change them (document 000, section 2.1).

Two layers are the poses of parts and of objects in the encoder's posterior. A transformation's matrix should multiply
them from the left. Errors of poses are weighted by presences. The third layer, objects' presences, should not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, Poses, plain
from pipeline.systems.generative.model.generative_model import GenerativeModel


def read(model: GenerativeModel, images: Tensor) -> dict[str, Layer]:
    """The layers "parts", "objects" and "presences" by name, for B images of S x S pixels, `[B, 1, S, S]` in [0, 1]."""
    posterior = model.encode(images)
    t1, t0 = ((y / model.temperature).sigmoid() for y in (posterior.part_logits, posterior.object_logits))
    return {
        "parts": Layer(posterior.part_poses, t1, Poses()),
        "objects": Layer(posterior.object_poses, t0, Poses()),
        "presences": plain(t0.unsqueeze(1), None, False),
    }
