"""The evidence lower bound of the probabilistic capsule model, term by term.

Shapes: B images, O objects, P parts; images `[B, 1, S, S]` in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Normal

from pipeline.systems.generative.model.distributions import Sampled, presence_log_prob

if TYPE_CHECKING:
    from pipeline.systems.generative.model.generative_model import GenerativeModel


@dataclass(frozen=True, kw_only=True)
class BoundTrace(Sampled):
    """The sample behind the bound of a batch, and the bound's terms: tensors `[B]` in nats, unless noted."""

    log_pixels: Tensor
    log_parts: Tensor
    log_objects: Tensor
    entropy: Tensor
    error: Tensor  # (B,), squared error summed over the pixels
    children: Tensor  # (B, O), expected children of each object under the exact posterior over parents

    @property
    def bound(self) -> Tensor:
        """One-sample estimate of the evidence lower bound of each image."""
        return self.log_pixels + self.log_parts + self.log_objects + self.entropy

    def metrics(self, model: GenerativeModel) -> dict[str, Tensor]:
        """Per-image values of the bound's terms, and metrics that show a collapse.

        Two are statistics of the whole batch (the model's `batch_statistics`): the mean number of children of the
        object with the most children, and the perplexity of the objects' shares of all children, from 1 (one object has
        every part) to O.
        """
        children = self.children.mean(0)
        share = children / children.sum().clamp_min(1e-12)
        return {
            "bound": self.bound,
            "log_pixels": self.log_pixels,
            "log_parts": self.log_parts,
            "log_objects": self.log_objects,
            "entropy": self.entropy,
            "pixel_error": self.error,
            "parts_on": self.parts[..., 0].sigmoid().mean(-1),
            "objects_on": self.y0.sigmoid().mean(-1),
            "most_children": children.max(),
            "objects_in_use": (-torch.xlogy(share, share).sum()).exp(),
            "pose_sd": model.c[:, 1:].mean(),
        }


def trace_bound(
    model: GenerativeModel,
    images: Tensor,
    noise: Tensor,
    coupling: Tensor | float = 1.0,
    temperature: Tensor | float | None = None,
) -> BoundTrace:
    """One-sample evidence lower bound of each image under the model's own guide.

    Args:
        temperature: of the relaxed presences; None: that for evaluation.
    """
    return score(model, images, model.guide(images, noise, coupling, temperature), coupling, temperature)


def score(
    model: GenerativeModel,
    images: Tensor,
    found: Sampled,
    coupling: Tensor | float = 1.0,
    temperature: Tensor | float | None = None,
) -> BoundTrace:
    """As `trace_bound`, from a sample of any guide."""
    temperature = model.temperature if temperature is None else temperature
    parts, y0, A0 = found.parts, found.y0, found.object_poses
    layer = model.parts_given_objects(y0, A0, coupling, temperature)
    mean = model.draw(parts)
    entropy = -found.log_prob(temperature, coupling)
    logits = y0.new_full(y0.shape, model.params.object_presence).logit()
    log_objects = presence_log_prob(y0, logits, temperature).sum(-1)
    # Scales are tensors on the device: Python numbers would be copied from the CPU at every step.
    prior = Normal(torch.zeros_like(A0), A0.new_ones(()), validate_args=False)
    log_objects = log_objects + prior.log_prob(A0).flatten(1).sum(-1)
    log_parts = layer.log_prob(parts)
    pixels = Normal(mean, mean.new_full((), model.params.pixel_sd), validate_args=False)
    with torch.no_grad():
        children = layer.parent_posterior(parts)[..., 1:].sum(dim=-2)
    return BoundTrace(
        **vars(found),
        log_pixels=pixels.log_prob(images[:, 0]).flatten(1).sum(-1),
        log_parts=log_parts,
        log_objects=log_objects,
        entropy=entropy,
        error=((images[:, 0] - mean) ** 2).sum((-1, -2)),
        children=children,
    )
