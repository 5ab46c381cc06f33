"""Free-form variational inference: the bound optimised for each image by itself (document 000, section 2.4).

Every image gets variational parameters of its own (log odds and poses of its parts and objects), started at the
encoder's output. The generative model stays as it is; only the guide is replaced. All images are one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from torch import Generator, Tensor

from pipeline.layers.presences import RelaxedPresence
from pipeline.models.generative import BoundTrace, Capsules, GenerativeModel, PartPosterior, trace_bound

EVALUATION_SAMPLES = 16
"""Samples of the presences that a bound before or after is averaged over, the same for both."""


@dataclass(frozen=True)
class Optimised:
    """What free-form inference of N images found.

    Attributes:
        start, end: the posteriors before and after.
        bound_start, bound_end: bounds `[N]`, in nats, averaged over the same presence samples.
        error_start, error_end: squared pixel errors `[N]`, summed over the pixels, likewise averaged.
        curve: columns step, bound, pixel_error: means over the images of one-sample estimates.
    """

    start: Capsules
    end: Capsules
    bound_start: Tensor
    bound_end: Tensor
    error_start: Tensor
    error_end: Tensor
    curve: pd.DataFrame


def free_guide(model: GenerativeModel, posterior: Capsules) -> Callable[..., None]:
    """A guide whose parameters are the given tensors, one row per image, instead of an encoder's output."""
    P, temperature = model.params.parts, model.params.temperature

    def guide(images: Tensor, noise: Tensor | None = None, coupling: float = 1.0) -> None:
        part_noise, object_noise = (None, None) if noise is None else (noise[:, :P], noise[:, P:])
        with pyro.plate("images", images.shape[0]):
            presence = RelaxedPresence(posterior.part_logits, temperature, part_noise)
            pyro.sample("parts", PartPosterior(presence, posterior.part_poses))
            pyro.sample("y0", RelaxedPresence(posterior.object_logits, temperature, object_noise).to_event(1))
            pyro.sample("A0", dist.Delta(posterior.object_poses, event_dim=2))

    return guide


def expected_bound(model: GenerativeModel, images: Tensor, posterior: Capsules, noise: Tensor) -> BoundTrace:
    """The bound of each image under a free-form posterior, one sample: all tensors of `BoundTrace`."""
    return trace_bound(model, images, noise, 1.0, free_guide(model, posterior))


@torch.no_grad()
def _evaluate(model: GenerativeModel, images: Tensor, posterior: Capsules, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Bound and squared error of each image, averaged over the samples `noise [samples, N, K]`."""
    traces = [expected_bound(model, images, posterior, sample) for sample in noise]
    bound = torch.stack([trace.bound for trace in traces]).mean(0)
    return bound, torch.stack([trace.error for trace in traces]).mean(0)


def optimise(
    model: GenerativeModel,
    images: Tensor,
    steps: int,
    learning_rate: float,
    generator: Generator,
    record_every: int = 10,
) -> Optimised:
    """Raise the bound of each image by Adam on its own variational parameters, from the encoder's output.

    The presences are sampled afresh at every step; the step size falls to a tenth along a cosine so that the last steps
    average that noise out. An image whose bound ends below its start keeps its start.

    Args:
        images: `[N, 1, S, S]` in [0, 1], on the model's device.
        steps: gradient steps; one gradient evaluation each.
        learning_rate: Adam's first step size.
        generator: of the presence samples.
        record_every: steps between two points of the curve.
    """
    device, count = images.device, len(images)
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        with torch.no_grad():
            start = model.encode(images)
        names = [field.name for field in fields(Capsules)]
        free = replace(start, **{name: getattr(start, name).clone().requires_grad_() for name in names})
        optimiser = torch.optim.Adam([getattr(free, name) for name in names], lr=learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=learning_rate / 10)
        points = []
        for step in range(steps):
            trace = expected_bound(model, images, free, model.draw_noise((count,), generator, device))
            optimiser.zero_grad()
            # The sum, not the mean: an image's steps do not depend on how many others are in the batch.
            (-trace.bound.sum()).backward()
            if step % record_every == 0 or step == steps - 1:
                points.append(torch.stack([trace.bound.detach().mean(), trace.error.detach().mean()]))
                points[-1] = torch.cat([torch.tensor([float(step)], device=device), points[-1]])
            optimiser.step()
            schedule.step()
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
    end = replace(free, **{name: getattr(free, name).detach() for name in names})
    noise = model.draw_noise((EVALUATION_SAMPLES, count), generator, device)
    bound_start, error_start = _evaluate(model, images, start, noise)
    bound_end, error_end = _evaluate(model, images, end, noise)
    better = bound_end > bound_start
    end = replace(end, **{name: _where(better, getattr(end, name), getattr(start, name)) for name in names})
    return Optimised(
        start,
        end,
        bound_start,
        torch.where(better, bound_end, bound_start),
        error_start,
        torch.where(better, error_end, error_start),
        pd.DataFrame(torch.stack(points).cpu().numpy(), columns=["step", "bound", "pixel_error"]),
    )


def _where(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (first.dim() - 1)), first, second)
