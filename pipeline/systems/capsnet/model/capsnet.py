"""CapsNet (Sabour et al. 2017), the network that document 001 studies (section 3.1, Figure 1A, appendix A).

    image -> convolution, ReLU -> convolution, squash: primary capsules -> [middle capsules ->] class capsules

Routing by agreement gives weights to votes. With 0 iterations, votes have no weights. A class capsule's length shows
whether its class is present (equation 3, margin loss). A decoder may reconstruct images from the label's class capsule.

Shapes: B images `[B, 1, S, S]` in [0, 1], m primary capsules `[B, m, d]`, n class capsules `[B, n, D]`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.layers.class_losses import margin_loss
from pipeline.layers.dynamic_routing import route, squash, unweighted_sum
from pipeline.layers.fourier import FourierConvolution
from pipeline.layers.images import ChannelsLastConvolution
from pipeline.learning.model import Model
from pipeline.systems.capsnet.settings import CapsNetModelParams

Layer = Callable[[Tensor], Tensor]
_NORMAL_SD = 0.1
"""Sd of normal initial transformations, as in the code of Sabour et al."""


def forward_pass(layers: Sequence[Layer], images: Tensor) -> list[Tensor]:
    """Activities of each layer, in order. The images are not among them."""
    activities = []
    for layer in layers:
        images = layer(images)
        activities.append(images)
    return activities


class CapsuleLayer(nn.Module):
    """A layer of capsules: each capsule below has a transformation to each capsule above.

    Args:
        below, above: (number, dimensions) of the capsules below, (m, d), and of this layer's capsules, (n, D).
        updates: number of updates of the weights by routing, or None for unweighted sums of votes.
        start: initial transformations: "normal" (with sd `_NORMAL_SD`), or "uniform" from -m^(-1/2) to m^(-1/2).
    """

    def __init__(self, below: tuple[int, int], above: tuple[int, int], updates: int | None, start: str) -> None:
        super().__init__()
        values = torch.empty(*below, *above)  # (m, d, n, D)
        bound = below[0] ** -0.5
        values = values.normal_(0, _NORMAL_SD) if start == "normal" else values.uniform_(-bound, bound)
        self.transformations = nn.Parameter(values)
        self.updates = updates

    def forward(self, capsules: Tensor) -> Tensor:
        """The capsules `[B, n, D]` of the layer, from `capsules [B, m, d]` below."""
        if self.updates is None:
            return squash(unweighted_sum(capsules, self.transformations))
        return squash(route(capsules, self.transformations, self.updates))


class CapsNet(Model):
    """The network with its losses.

    Args:
        params: settings of the network.
        image_size: side S of the square images, in pixels.

    Raises:
        UserError: images of that size are too small for the convolutions.
    """

    def __init__(self, params: CapsNetModelParams, image_size: int) -> None:
        super().__init__()
        self.params, self.image_size = params, image_size
        first, second = params.strides
        side = ((image_size - params.kernel) // first + 1 - params.kernel) // second + 1
        if side < 1:
            raise UserError(
                f"capsnet: kernels of {params.kernel} pixels leave nothing of {image_size}x{image_size} images"
            )
        self.first = ChannelsLastConvolution(1, params.channels, params.kernel, first)
        self.second = FourierConvolution(params.channels, params.types * params.primary_size, params.kernel, second)
        # If `counting` is "sums", n iterations are n sums of votes, with n - 1 updates of weights between them.
        updates = params.iterations - (params.counting == "sums") if params.iterations else None
        below = (side**2 * params.types, params.primary_size)
        middle = (params.middle, params.middle_size)
        classes, start = (params.classes, params.class_size), params.transformations
        self.middle = CapsuleLayer(below, middle, updates, start) if params.middle else None
        self.last = CapsuleLayer(middle if params.middle else below, classes, updates, start)
        self.decoder: nn.Module | None = None
        if params.reconstruction != "none":
            sizes = [params.classes * params.class_size, *params.decoder]
            hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
            self.decoder = nn.Sequential(*hidden, nn.Linear(sizes[-1], image_size**2), nn.Sigmoid())

    def generative_parameters(self) -> int:
        """Number of the decoder's parameters."""
        return sum(p.numel() for p in self.decoder.parameters()) if self.decoder else 0

    def feature_maps(self, images: Tensor) -> Tensor:
        """Feature maps `[B, channels, H, H]` of images `[B, 1, S, S]`, after the first convolution and ReLU."""
        return self.first(images).relu()

    def primary_capsules(self, feature_maps: Tensor) -> Tensor:
        """Primary capsules `[B, m, d]` of `feature_maps`, ordered by position, then by type."""
        maps = self.second(feature_maps).permute(0, 2, 3, 1)  # (B, rows, columns, types * d), the order in memory
        return squash(maps.reshape(len(maps), -1, self.params.primary_size))

    def layers(self) -> list[Layer]:
        """The layers in order, from feature maps to class capsules, as functions of the layer below."""
        return [self.feature_maps, self.primary_capsules, *([self.middle] if self.middle else []), self.last]

    def encode(self, images: Tensor) -> Tensor:
        """Class capsules `[B, n, D]` of images `[B, 1, S, S]`."""
        return forward_pass(self.layers(), images)[-1]

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Features of images `[B, 1, S, S]` for probes: class_capsules, flattened."""
        return {"class_capsules": self.encode(images).flatten(1)}

    def decode(self, capsules: Tensor, labels: Tensor) -> Tensor:
        """Images `[B, 1, S, S]` decoded from `capsules [B, n, D]`, after all but the label's capsule are set to 0."""
        assert self.decoder is not None
        chosen = F.one_hot(labels, capsules.shape[1]).to(capsules).unsqueeze(-1)
        pixels = self.decoder((capsules * chosen).flatten(1))
        return pixels.unflatten(-1, (1, self.image_size, self.image_size))

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the metrics `margin_loss`, `accuracy` (whether the label's capsule is longest) and, with a
        decoder, `pixel_error` (squared, summed over pixels). All are means over images. `noise` and `epoch` are unused.
        """
        assert labels is not None
        params, capsules = self.params, self.encode(images)
        lengths = capsules.norm(dim=-1)
        margins = params.present_margin, params.absent_margin, params.absent_weight
        loss = margin = margin_loss(lengths, labels, *margins).mean()
        metrics = {"margin_loss": margin.detach(), "accuracy": (lengths.argmax(-1) == labels).float().mean()}
        if self.decoder is not None:
            error = (self.decode(capsules, labels) - images).square().flatten(1).sum(-1).mean()
            scale = 1.0 if params.reconstruction == "summed" else 1 / self.image_size**2
            loss = margin + params.reconstruction_weight * scale * error
            metrics["pixel_error"] = error.detach()
        return loss, metrics
