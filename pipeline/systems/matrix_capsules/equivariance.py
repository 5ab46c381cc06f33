"""The layers of matrix capsules for measures of equivariance: features f, action rho (document 003, equation 5).

f are the poses of class capsules. A matrix that multiplies all poses below from the left also multiplies votes and
class poses from the left (document 004, section 3). rho is such a matrix, fitted because theory leaves it open. Vector
poses have no rho. Poses are weighted by activation. The activations of classes should not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import FromTheLeft, Layer, plain
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules


def read(model: MatrixCapsules, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, C, S, S]` in [0, 1]: poses, presences (activations)."""
    poses, activations = (each[:, 0] for each in model.capsules(images)[-1])
    action = FromTheLeft(model.params.pose_side) if model.params.pose == "matrix" else None
    return {"poses": Layer(poses, activations, action), "presences": plain(activations.unsqueeze(1), None, False)}
