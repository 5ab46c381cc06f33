"""The convolutional baseline of document 004, section 5. It has 4.2 million parameters at 32x32 pixels.

    image -> convolution, ReLU, pooling -> convolution, ReLU, pooling -> fully connected, ReLU, dropout -> classes

Shapes: B images `[B, C, S, S]` in [0, 1], n classes.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.classification.classifier import Classifier
from pipeline.layers.images import ChannelsLastConvolution, standardise
from pipeline.systems.cnn.settings import CNNModelParams


class CNN(Classifier):
    """Two convolutions and two fully connected layers.

    Args:
        params: sizes, dropout and mixup.
        image_size: side S of the square images, in pixels. If 4 does not divide S, pooling drops pixels at the edge.
    """

    def __init__(self, params: CNNModelParams, image_size: int) -> None:
        super().__init__(params.hidden, params.mixup)
        self.params = params
        first, second = params.channels
        pad = params.kernel // 2  # keeps images' size; without padding, the parameters would be fewer than 4.2 million
        self.first = ChannelsLastConvolution(params.views, first, params.kernel, padding=pad)
        self.second = ChannelsLastConvolution(first, second, params.kernel, padding=pad)
        self.hidden = nn.Linear(second * (image_size // 2 // 2) ** 2, params.hidden)
        self.last = nn.Linear(params.hidden, params.classes)

    def maps(self, images: Tensor) -> Tensor:
        """Feature maps after the second pooling, `[B, channels, S // 4, S // 4]`."""
        x = F.max_pool2d(self.first(standardise(images)).relu(), 2)
        return F.max_pool2d(self.second(x).relu(), 2)

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Logits `[B, n]`. In training, `noise [B, hidden]`, uniform in [0, 1), selects the units that are dropped."""
        x = self.hidden(self.maps(images).flatten(1)).relu()
        if self.training and noise is not None:
            x = x * (noise >= self.params.dropout) / (1 - self.params.dropout)
        logits: Tensor = self.last(x)
        return logits

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        """Cross-entropy of each image, `[B]`."""
        return F.cross_entropy(scores, labels, reduction="none")
