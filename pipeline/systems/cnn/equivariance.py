"""The layers whose equivariance is measured, and their actions: how a transformation of the image should change them.

The maps after the second pooling should move as the image does. Except at edges, they shift by one pixel if the image
shifts by four. For the hidden features, which are the input of the last layer, theory gives no action.
"""

from torch import Tensor

from pipeline.probes.equivariance.actions import FeatureMaps, Layer, plain
from pipeline.systems.cnn.model.cnn import CNN


def read(model: CNN, images: Tensor) -> dict[str, Layer]:
    """The layers "maps" and "hidden" by name, for images `[B, C, S, S]` in [0, 1]."""
    maps = model.maps(images)
    hidden = model.hidden(maps.flatten(1)).relu()
    return {
        "maps": plain(maps.flatten(2), FeatureMaps(maps.shape[-1], "border"), False),
        "hidden": plain(hidden.unsqueeze(1), None),
    }
