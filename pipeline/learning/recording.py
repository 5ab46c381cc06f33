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
"""From tensors to gradients and metrics, by name. Reads nothing that changes but its arguments and parameters that are
changed in place, and waits for nothing."""

WARM_UP = 3
"""Calls before the recording, in which libraries choose their kernels and allocate."""
CLOSE = 0.01
"""How far what is replayed may be from what is computed, as a share of its norm: sums are taken in another order."""

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

    The tensors of a replay are overwritten by the next one. A step that cannot be recorded, or whose replay does not
    give what the step gives, is computed as it stands, with a warning.

    Args:
        step: what to record.
        record: makes a recording of a step on given inputs.

    Attributes:
        recording: None before the first call, and where the step is computed as it stands.
    """

    def __init__(self, step: Step, record: Callable[[Step, Sequence[Tensor]], Recording] | None = None) -> None:
        self.step, self.record = step, record or record_on_gpu
        self.recording: Recording | None = None
        self._inputs: list[Tensor] = []
        self._tried = False

    def __call__(self, *inputs: Tensor) -> tuple[Named, Named]:
        """What the step gives, on the device of its inputs."""
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
        """Record on other numbers than the inputs', so that a replay that ignored what it is given would not pass."""
        expected = self.step(*inputs)  # before the recording holds as much memory again
        self._inputs = [each + 1 if each.is_floating_point() else torch.zeros_like(each) for each in inputs]
        try:
            recording = self.record(self.step, self._inputs)
            found = self._again(recording, inputs)
        except RuntimeError as error:  # what CUDA raises, in its own words and in those of what it met before
            cause = error.__context__ or error
            _logger.warning("a training step cannot be recorded, and is launched kernel by kernel: %s", cause)
            return
        if not all(map(_close, found, expected)):
            _logger.warning("a recorded training step gives something else, and is launched kernel by kernel")
            return
        self.recording = recording


def _alike(held: Tensor, given: Tensor) -> bool:
    return held.shape == given.shape and held.dtype == given.dtype


def _close(found: Named, expected: Named) -> bool:
    """Whether all values together differ by little."""
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
    mode = torch.cuda.get_sync_debug_mode()
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            step(*inputs)
        # A step that waits is found out before CUDA meets it in a recording, which leaves a process in disorder.
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(*inputs)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # The outer stream brings the current one back also where the recording fails.
    with torch.cuda.stream(aside), torch.cuda.graph(graph, stream=aside):
        outputs = step(*inputs)
    torch.cuda.empty_cache()  # of what the first calls took
    return Recording(graph.replay, outputs)


def recorded(step: Step, device: torch.device) -> Step:
    """The step as it is best taken on a device: recorded on a GPU, as it stands on a CPU."""
    return Recorded(step) if device.type == "cuda" else step
