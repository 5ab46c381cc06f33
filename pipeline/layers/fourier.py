"""Convolutions with large kernels on a CPU, as products of discrete Fourier transforms.

A convolution with stride s is a sum of s^2 convolutions with stride 1, one for each phase (row and column modulo s). A
kernel with sides of k pixels gives kernels with sides of k' = ceil(k / s). For outputs with sides of H', transforms of
n x n points are enough, n = H' + k' - 1. Real data have about n^2 / 2 distinct frequencies. Each frequency takes four
real multiplications in each phase. CapsNet's primary capsules (k = 9, s = 2, H' = 6) need 832 of these multiplications
per image and pair of channels. Direct convolution needs 36 * 81 = 2,916.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers.images import ChannelsLastConvolution


@cache
def _transforms(n: int, kernel: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices that give real and imaginary parts of the Fourier transform of `n x n` real points at `f` frequencies.

    Returns:
        for_inputs `[f, 2, n^2]`, for_kernels `[f, 2, kernel^2]`, and inverse `[f, 2, outputs^2]`. A transform times
        inverse, summed over frequencies and over real and imaginary parts, gives back the values of the points in the
        first `outputs` rows and columns.
    """
    half = [(i, j) for i in range(n) for j in range(n // 2 + 1) if 0 < 2 * j < n or 2 * i <= n]
    frequencies = torch.tensor(half, dtype=torch.float64)

    def transform(side: int) -> Tensor:
        points = torch.arange(side, dtype=torch.float64)
        angles = 2 * math.pi / n * frequencies @ torch.cartesian_prod(points, points).T
        # Rounds numbers near 1e-17 to 0. Otherwise, denormal products would take a quarter of a training step's time.
        return torch.stack([angles.cos(), -angles.sin()], 1).round(decimals=12)

    counts = 2.0 - (2 * frequencies % n == 0).all(1).double()  # 2 if the conjugate frequency is left out, else 1
    return transform(n), transform(kernel), transform(outputs) * counts[:, None, None] / n**2


class FourierConvolution(ChannelsLastConvolution):
    """A `ChannelsLastConvolution` without padding, computed by Fourier transforms on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[B, in, H, H]` to `[B, out, H', H']`."""
        if x.is_cuda:
            return super().forward(x)
        s, (out, k, _, channels), images = self.stride, self.weight.shape, len(x)
        outputs, kernel = (x.shape[-1] - k) // s + 1, -(-k // s)
        n = outputs + kernel - 1
        for_inputs, for_kernels, inverse = (part.to(x) for part in _transforms(n, kernel, outputs))
        more = n * s - x.shape[-1]  # rows and columns to pad, or to cut off (if negative) because no kernel covers them
        x = F.pad(x.permute(0, 2, 3, 1), (0, 0, 0, more, 0, more)).reshape(images, n, s, n, s, channels)
        x = for_inputs.flatten(0, 1) @ x.permute(1, 3, 0, 2, 4, 5).reshape(n**2, -1)
        x = x.view(len(inverse), 2 * images, -1)  # (f, 2 * images, phases * channels), real parts before imaginary
        more = kernel * s - k
        w = F.pad(self.weight, (0, 0, 0, more, 0, more)).view(out, kernel, s, kernel, s, channels)
        w = w.permute(1, 3, 0, 2, 4, 5).reshape(kernel**2, -1)
        products = (for_kernels.flatten(0, 1) @ w).view(len(x), 2 * out, -1) @ x.mT
        # The conjugate of the kernel's transform is used, because a network's convolution does not flip its kernel.
        (a, b), (c, d) = (half.split(out, 1) for half in products.split(images, -1))
        real, imaginary = a + d, c - b
        y = inverse[:, 0].T @ real.flatten(1) + inverse[:, 1].T @ imaginary.flatten(1)
        y = y.view(outputs, outputs, out, images).permute(3, 2, 0, 1)
        return y if self.bias is None else y + self.bias[:, None, None]
