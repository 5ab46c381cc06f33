"""The layers of a stacked capsule autoencoder for measures of equivariance: features f, actions rho.

The features are the poses of parts, and the votes: poses of parts that an object predicts from its own pose. Both move
with the image by composition, because an object's pose multiplies its votes from the left. Poses are weighted by the
presence of the part, votes by the presence of the vote. The presences of objects are a layer that should not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, Poses, plain
from pipeline.systems.scae.model.scae import SCAE


def read(model: SCAE, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, 1, S, S]` in [0, 1]: parts, objects (their votes), presences."""
    parts = model.encode_parts(images)
    objects = model.encode_objects(parts)
    return {
        "parts": Layer(parts.poses, parts.presence, Poses()),
        "objects": Layer(objects.votes.flatten(1, 2), objects.vote_presence.flatten(1), Poses(), False),
        "presences": plain(objects.presence.unsqueeze(1), None, False),
    }
