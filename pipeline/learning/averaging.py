"""Averages of the weights over training steps: polynomial-decay averaging (Shamir and Zhang 2013, section 4).

After step t, with the weights w_t,

    average_t = (1 - c_t) average_(t-1) + c_t w_t,    c_t = (p + 1) / (t + p),    p = 1 / window - 2

The share of the weights w_s in the average is about proportional to s^p. This is an exponential moving average whose
horizon grows with training: the mean age of the averaged weights is always `window * t` steps. An average with a fixed
decay rate needs another rate if the number of epochs or the batch size changes, and a correction for its initial
values. With polynomial decay, `window` means the same in a training of any length. The initial weights have no share in
the average, because c_1 = 1.
"""

from collections.abc import Mapping

import torch
from torch import Tensor


class Average:
    """The running average of some parameters.

    Args:
        parameters: the parameters by name. The optimiser changes them in place.
        window: mean age of the averaged weights, as a share of all steps so far, above 0. The maximum, 1/2,
            gives the plain mean of w_1 to w_t.

    Attributes:
        averaged: the averages of the parameters, by name.
    """

    def __init__(self, parameters: Mapping[str, Tensor], window: float) -> None:
        self._parameters, self._power = parameters, 1 / window - 2
        self.averaged = {name: value.detach().clone() for name, value in parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the parameters after step number `step` (counted from 1). Does not wait for the device."""
        share = (self._power + 1) / (step + self._power)
        torch._foreach_lerp_(list(self.averaged.values()), list(self._parameters.values()), share)
