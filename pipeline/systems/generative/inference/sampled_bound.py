"""The bound of a free-form posterior, estimated with samples of its presences.

Every image has its own variational parameters, which the guide uses instead of an encoder's output.
"""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pipeline.systems.generative.model.bound import BoundTrace, trace_bound
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.posteriors import Capsules, PartPosterior
from pipeline.systems.generative.model.presences import RelaxedPresence


def free_guide(model: GenerativeModel, posterior: Capsules) -> Callable[..., None]:
    """A guide whose parameters are the given tensors, one row per image, instead of an encoder's output."""
    P, temperature = model.params.parts, model.temperature

    def guide(images: Tensor, noise: Tensor, coupling: float) -> None:
        with pyro.plate("images", len(images)):
            presence = RelaxedPresence(posterior.part_logits, temperature, noise[:, :P])
            pyro.sample("parts", PartPosterior(presence, posterior.part_poses))
            pyro.sample("y0", RelaxedPresence(posterior.object_logits, temperature, noise[:, P:]).to_event(1))
            pyro.sample("A0", dist.Delta(posterior.object_poses, event_dim=2))

    return guide


def expected_bound(model: GenerativeModel, images: Tensor, posterior: Capsules, noise: Tensor) -> BoundTrace:
    """The bound of each image under a free-form posterior, one sample: all tensors of `BoundTrace`."""
    return trace_bound(model, images, noise, 1.0, free_guide(model, posterior))


@torch.no_grad()
def mean_bound(model: GenerativeModel, images: Tensor, posterior: Capsules, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Bound and squared error of each image, averaged over the samples `noise [samples, N, K]`."""
    traces = [expected_bound(model, images, posterior, sample) for sample in noise]
    bound = torch.stack([trace.bound for trace in traces]).mean(0)
    return bound, torch.stack([trace.error for trace in traces]).mean(0)
