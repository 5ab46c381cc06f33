"""What the measures of equivariance read off matrix capsules: f and rho (document 003, equation 5; 004, section 3).

f are the poses of class capsules. A matrix that multiplies all poses below from the left also multiplies votes
and class poses from the left: rho is such a matrix, fitted, because theory does not say which (`FromTheLeft`). Vector
poses have no rho. Poses are weighted by activation. The activations of classes should not change.
"""

from __future__ import annotations

from torch import Tensor

from pipeline.probes.equivariance.actions import FromTheLeft, Layer, plain
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules


def read(model: MatrixCapsules, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, C, S, S]` in [0, 1]: poses, presences (activations)."""
    poses, activations = (each[:, 0] for each in model.capsules(images)[-1])
    action = FromTheLeft(model.params.pose_side) if model.params.pose == "matrix" else None
    return {
        "poses": Layer(poses, activations, action),
        "presences": plain(activations.unsqueeze(1), None, False),
    }
