"""The layers of a capsule model for measures of equivariance: features f, actions rho (document 000, section 2.1).

The features are the poses of parts and of objects in the encoder's posterior. They move with the image by composition.
Poses are weighted by the presences of their capsules. The presences of objects are a layer that should not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, Poses, plain
from pipeline.systems.generative.model.generative_model import GenerativeModel


def read(model: GenerativeModel, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, 1, S, S]` in [0, 1]: parts, objects, presences."""
    posterior = model.encode(images)
    t1, t0 = ((y / model.temperature).sigmoid() for y in (posterior.part_logits, posterior.object_logits))
    return {
        "parts": Layer(posterior.part_poses, t1, Poses()),
        "objects": Layer(posterior.object_poses, t0, Poses()),
        "presences": plain(t0.unsqueeze(1), None, False),
    }
