"""The layers whose equivariance is measured, and how a transformation of the image should change each of them.

Two layers are the poses of parts, and the votes (the poses that objects predict for parts). A transformation should
multiply the poses of parts and objects from the left. This also multiplies the votes from the left, because a vote is
the object's pose times the part's pose in the object's frame. Errors are weighted by the presences of parts, or of
votes. The third layer, the presences of objects, should not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, Poses, plain
from pipeline.systems.scae.model.scae import SCAE


def read(model: SCAE, images: Tensor) -> dict[str, Layer]:
    """The layers by name ("parts", "objects" for the votes, "presences"), for images `[B, 1, S, S]` in [0, 1]."""
    parts = model.encode_parts(images)
    objects = model.encode_objects(parts)
    return {
        "parts": Layer(parts.poses, parts.presence, Poses()),
        "objects": Layer(objects.votes.flatten(1, 2), objects.vote_presence.flatten(1), Poses(), False),
        "presences": plain(objects.presence.unsqueeze(1), None, False),
    }
