"""What the measures of equivariance read off a convolutional network: f and rho.

f are the maps after the second pooling, which move as the image does, by resampling (convolutions commute with shifts
by whole strides); and the hidden features from which classes are read, for which theory gives no rho.
"""

from __future__ import annotations

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, Maps, plain
from pipeline.systems.cnn.model.cnn import CNN


def read(model: CNN, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, C, S, S]` in [0, 1]: maps, hidden."""
    maps = model.maps(images)
    hidden = model.hidden(maps.flatten(1)).relu()
    return {
        "maps": plain(maps.flatten(2), Maps(maps.shape[-1], "border"), False),
        "hidden": plain(hidden.unsqueeze(1), None),
    }
