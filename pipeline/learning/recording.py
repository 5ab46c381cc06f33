"""A training step as one launch: on a GPU the kernels of a function are recorded once, as a CUDA graph, and replayed.

A step of these models is hundreds of short kernels. Launched one by one from Python they take longer to start than to
run, and the device waits; replayed, they follow one another without the CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Named = dict[str, Tensor]
Step = Callable[..., tuple[Named, Named]]
"""From tensors to gradients and metrics, by name. Reads nothing that changes but its arguments and parameters that are
changed in place, and waits for nothing."""

WARM_UP = 3
"""Calls before the recording, in which libraries choose their kernels and allocate."""
CLOSE = 0.01
"""How far replayed gradients may be from computed ones, as a share of their norm: sums in another order."""

_logger = logging.getLogger(__name__)


class Recording(NamedTuple):
    """What was recorded.

    Attributes:
        replay: do it again, on what the inputs hold now.
        outputs: where the results are then.
    """

    replay: Callable[[], None]
    outputs: tuple[Named, Named]


class Recorded:
    """A step that is recorded at its first call, and replayed at all later ones on inputs of the same shapes.

    The results of a replay are overwritten by the next one. A step that cannot be recorded, or whose replay does not
    give what the step gives, is computed as it stands, with a warning.

    Args:
        step: what to record.
        record: makes a recording of a step on given inputs.

    Attributes:
        recording: None before the first call, and where the step is computed as it stands.
    """

    def __init__(self, step: Step, record: Callable[[Step, Sequence[Tensor]], Recording] | None = None) -> None:
        self.step, self.record = step, record or record_on_gpu
        self._inputs: list[Tensor] = []
        self.recording: Recording | None = None
        self._tried = False

    def __call__(self, *inputs: Tensor) -> tuple[Named, Named]:
        """What the step gives, on the device of its inputs."""
        if not self._tried:
            self._tried = True
            self._try(inputs)
        if self.recording is None or [each.shape for each in inputs] != [each.shape for each in self._inputs]:
            return self.step(*inputs)
        return self._again(self.recording, inputs)

    def _again(self, recording: Recording, inputs: Sequence[Tensor]) -> tuple[Named, Named]:
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given)
        recording.replay()
        return recording.outputs

    def _try(self, inputs: Sequence[Tensor]) -> None:
        """Record on zeros in place of the inputs, so that a replay that ignored what it is given would not pass."""
        self._inputs = [torch.zeros_like(each) for each in inputs]
        try:
            recording = self.record(self.step, self._inputs)
        except RuntimeError as error:  # what CUDA raises while it records
            _logger.warning("a training step cannot be recorded, and is launched kernel by kernel: %s", error)
            return
        expected, _ = self.step(*inputs)
        found, _ = self._again(recording, inputs)
        if not _close(found, expected):
            _logger.warning("a recorded training step gives other gradients, and is launched kernel by kernel")
            return
        self.recording = recording


def _close(found: Named, expected: Named) -> bool:
    """Whether all gradients together differ by little."""
    apart = sum((found[name] - value).double().square().sum() for name, value in expected.items())
    whole = sum(value.double().square().sum() for value in expected.values())
    return bool(apart <= CLOSE**2 * whole)


def record_on_gpu(step: Step, inputs: Sequence[Tensor]) -> Recording:
    """Record as a CUDA graph.

    Raises:
        RuntimeError: the step waits for the device, or does not fit into its memory twice.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            step(*inputs)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step(*inputs)
    return Recording(graph.replay, outputs)
