"""CUDA graphs: on a GPU the kernels of a training step are recorded once and replayed with a single launch.

A step of these models consists of hundreds of short kernels. If Python launches each of them, starting takes longer
than running, and the device waits. In a replay they run one after another without the CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Named = dict[str, Tensor]
Step = Callable[..., tuple[Named, Named]]
"""From tensors to gradients and metrics, by name. Apart from its arguments, it may read only constants and parameters
that are updated in place, and it must not synchronise with the device."""

WARM_UP = 3
"""Calls before the recording, in which libraries choose their kernels and allocate memory."""
CLOSE = 0.01
"""Largest relative difference, in norm, between replayed and computed values: the order of summation differs."""

_logger = logging.getLogger(__name__)


class Recording(NamedTuple):
    """A recorded step.

    Attributes:
        replay: runs it again, on the current values of the inputs.
        outputs: the tensors that a replay writes its results to.
    """

    replay: Callable[[], None]
    outputs: tuple[Named, Named]


class Recorded:
    """A step that is recorded at its first call, and replayed at later calls with inputs of the same shapes.

    Each replay overwrites the tensors of the one before. A step that cannot be recorded, or whose replay gives other
    values than the step, is run without recording, with a warning.

    Args:
        step: the step to record.
        record: records a step on given inputs.

    Attributes:
        recording: None before the first call, and if the step is run without recording.
    """

    def __init__(self, step: Step, record: Callable[[Step, Sequence[Tensor]], Recording] | None = None) -> None:
        self.step, self.record = step, record or record_on_gpu
        self.recording: Recording | None = None
        self._inputs: list[Tensor] = []
        self._tried = False

    def __call__(self, *inputs: Tensor) -> tuple[Named, Named]:
        """The step's results, on the device of its inputs."""
        if not self._tried:
            self._tried = True
            self._try(inputs)
        if self.recording is None or not all(map(_alike, self._inputs, inputs)):
            return self.step(*inputs)
        return self._again(self.recording, inputs)

    def _again(self, recording: Recording, inputs: Sequence[Tensor]) -> tuple[Named, Named]:
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given)
        recording.replay()
        gradients, metrics = recording.outputs
        return dict(gradients), dict(metrics)

    def _try(self, inputs: Sequence[Tensor]) -> None:
        """Record on other values than the inputs, so that a replay that ignores its inputs fails the check."""
        expected = self.step(*inputs)  # first, because the recording takes as much memory again
        self._inputs = [value + 1 if value.is_floating_point() else torch.zeros_like(value) for value in inputs]
        try:
            recording = self.record(self.step, self._inputs)
            replayed = self._again(recording, inputs)
        except RuntimeError as error:  # from CUDA; the cause is the error before it, if there is one
            cause = error.__context__ or error
            _logger.warning("a training step cannot be recorded, and is launched kernel by kernel: %s", cause)
            return
        if not all(map(_close, replayed, expected)):
            _logger.warning("a recorded training step gives other values, and is launched kernel by kernel")
            return
        self.recording = recording


def _alike(held: Tensor, given: Tensor) -> bool:
    return held.shape == given.shape and held.dtype == given.dtype


def _close(replayed: Named, expected: Named) -> bool:
    """Whether the values agree, up to `CLOSE` in the norm of all of them together."""
    difference = sum((replayed[name] - value).double().square().sum() for name, value in expected.items())
    total = sum(value.double().square().sum() for value in expected.values())
    return bool(difference <= CLOSE**2 * total)


def record_on_gpu(step: Step, inputs: Sequence[Tensor]) -> Recording:
    """Record as a CUDA graph.

    Raises:
        RuntimeError: the step synchronises with the device, or needs more than half of its memory.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    mode = torch.cuda.get_sync_debug_mode()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step(*inputs)
        # Detect synchronisation here: inside a recording it leaves CUDA unusable in this process.
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(*inputs)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # The outer context restores the current stream even if the recording fails.
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        outputs = step(*inputs)
    torch.cuda.empty_cache()  # release the memory of the warm-up calls
    return Recording(graph.replay, outputs)


def recorded(step: Step, device: torch.device) -> Step:
    """The fastest form of the step on a device: recorded on a GPU, unchanged on a CPU."""
    return Recorded(step) if device.type == "cuda" else step
