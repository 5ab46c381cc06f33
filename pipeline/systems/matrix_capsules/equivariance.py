"""The layers of matrix capsules whose equivariance is measured, and the action rho (document 003, equation 5).

rho describes how poses change when the image moves: every pose matrix is multiplied from the left by a matrix T. A vote
is a pose times a transformation on its right. So a T that multiplies all poses of a lower layer from the left also
multiplies the poses of class capsules (document 004, section 3). Theory does not give T, so T is fitted to data. For
vector poses, theory gives no rho. Errors of poses are weighted by activations. In theory, activations do not change.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import FromTheLeft, Layer, plain
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules


def read(model: MatrixCapsules, images: Tensor) -> dict[str, Layer]:
    """The class capsules' "poses" and "presences" (activations) as two layers, for images `[B, C, S, S]` in [0, 1]."""
    poses, activations = (each[:, 0] for each in model.capsules(images)[-1])
    action = FromTheLeft(model.params.pose_side) if model.params.pose == "matrix" else None
    return {"poses": Layer(poses, activations, action), "presences": plain(activations.unsqueeze(1), None, False)}
