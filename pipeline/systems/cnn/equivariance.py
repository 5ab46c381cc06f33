"""The layers of a convolutional network for measures of equivariance: features f, actions rho.

The maps after the second pooling move as the image does, by resampling: convolutions commute with shifts by whole
strides. Theory gives no rho for the hidden features, from which the last layer computes the classes.
"""

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
