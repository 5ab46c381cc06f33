"""Operations on images `[B, C, S, S]`, the input of networks: standardisation, convolution and crops."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.layers.poses import compose, invert


def standardise(images: Tensor) -> Tensor:
    """Each image minus the mean of its n = C S S values, divided by their standard deviation (at least 1 / n)."""
    centred = images - images.mean((-3, -2, -1), keepdim=True)
    variance = centred.square().mean((-3, -2, -1), keepdim=True)
    count = images.shape[-3:].numel()
    return centred / variance.clamp_min(1 / count**2).sqrt()


class ChannelsLastConvolution(nn.Module):
    """A convolution whose kernels are stored with channels last. PyTorch then also stores the output with
    channels last. This is faster, and the numbers of a capsule (channels at one position) are adjacent in memory.
    """

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> None:
        super().__init__()
        like = nn.Conv2d(channels_in, channels_out, kernel, stride)  # only for its initial values
        # `contiguous()` is not enough: with one input channel, it does not copy, so strides stay channels-first.
        weight = torch.empty(channels_out, kernel, kernel, channels_in).copy_(like.weight.detach().permute(0, 2, 3, 1))
        self.weight = nn.Parameter(weight)  # (out, k, k, in)
        self.bias = nn.Parameter(like.bias.detach()) if bias else None  # type: ignore[union-attr]
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[B, in, H, H]` to `[B, out, H', H']`."""
        weight = self.weight.permute(0, 3, 1, 2)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


def centre_crop(images: Tensor, size: int) -> Tensor:
    """The middle `size x size` pixels of images `[..., S, S]`."""
    first = (images.shape[-1] - size) // 2
    return images[..., first : first + size, first : first + size]


def crops(images: Tensor, size: int, places: Tensor) -> Tensor:
    """Squares `[B, C, size, size]` of images `[B, C, S, S]`. `places [B, 2]`: (row, column) of upper left corners."""
    along = torch.arange(size, device=images.device)
    rows = (places[:, 0, None] + along)[:, None, :, None]  # (B, 1, size, 1)
    columns = (places[:, 1, None] + along)[:, None, None, :]  # (B, 1, 1, size)
    image = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return images[image, channel, rows, columns]


def warped_crops(images: Tensor, size: int, places: Tensor, matrices: Tensor) -> Tensor:
    """Warp images, then cut out `crops`, with one bilinear interpolation. Returns `[B, C, size, size]`, float32.

    The matrices `[B, 2, 3]` map positions before the warp to positions after it. Positions are in pixels from the
    centre of an image, x to the right and y down. Beyond the edges of an image, its edge pixels are repeated.
    """
    count, channels, side, _ = images.shape
    # `sampling` maps coordinates in the crop, in [-1, 1], to pixels from the image's centre, then to positions before
    # the warp, then to coordinates in the image, in [-1, 1].
    linear = torch.eye(2, device=images.device).expand(count, 2, 2) * (size / 2)
    middle = places.flip(-1).float() + (size - side) / 2
    sampling = compose(invert(matrices), torch.cat([linear, middle[..., None]], -1)) * (2 / side)
    grid = F.affine_grid(sampling, [count, channels, size, size], align_corners=False)
    return F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
