"""What the measures of equivariance read off a convolutional network: f and rho.

f are the maps after the second pooling, which move as the image does, by resampling (of convolutions, shifts by whole
strides do); and the hidden features from which classes are read, for which theory gives no rho.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from pipeline.probes.equivariance.actions import Layer, Maps, plain
from pipeline.systems.cnn.model.cnn import CNN


def read(model: CNN, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, C, S, S]` in [0, 1]: maps, hidden. What goes into the fully connected layers is taken."""
    found: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        found[module] = inputs[0]

    with ExitStack() as hooks:
        for module in (model.hidden, model.last):
            hooks.enter_context(module.register_forward_pre_hook(keep))
        model.scores(images)
    channels = model.params.channels[1]
    maps = found[model.hidden].unflatten(-1, (channels, -1))
    return {
        "maps": plain(maps, Maps(round(maps.shape[-1] ** 0.5), "border"), False),
        "hidden": plain(found[model.last].unsqueeze(1), None),
    }
