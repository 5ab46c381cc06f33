"""The evidence lower bound of the probabilistic capsule model, term by term.

Shapes: B images, O objects, P parts; images `[B, 1, S, S]` in [0, 1].
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.layers.traces import traced


@dataclass(frozen=True)
class BoundTrace:
    """The bound of a batch and its terms: tensors `[B]` in nats, unless noted."""

    log_pixels: Tensor
    log_parts: Tensor
    log_objects: Tensor
    entropy: Tensor
    parts: Tensor  # (B, P, 7), sampled states
    y0: Tensor  # (B, O), sampled presence logits
    object_logits: Tensor  # (B, O), log odds of q(t0)
    object_poses: Tensor  # (B, O, 6), sampled
    error: Tensor  # (B,), squared error summed over the pixels
    children: Tensor  # (B, O), expected children of each object under the exact posterior over parents

    @property
    def bound(self) -> Tensor:
        """One-sample estimate of the evidence lower bound of each image."""
        return self.log_pixels + self.log_parts + self.log_objects + self.entropy

    def metrics(self, c: Tensor) -> dict[str, Tensor]:
        """The bound, its terms and other metrics of each image, and three scalars. `c` are the sds around votes.

        The scalar pose_sd is the mean of `c`. The other two are of the whole batch and show a collapse: most_children
        is the mean number of children of the object with the most children; objects_in_use is the perplexity of the
        objects' shares of all children, from 1 (one object has all children) to O.
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
            "pose_sd": c.mean(),
        }


def bound_of_traces(model: Callable[[], Tensor], guide: Callable[[], None], images: Tensor) -> BoundTrace:
    """One-sample evidence lower bound of each of `images [B, 1, S, S]`, from the traces of guide and model. `model`
    must return the rendered means `[B, S, S]`.
    """
    p, q = traced(model, guide)
    mean = p["_RETURN"]["value"]
    with torch.no_grad():
        children = p["parts"]["fn"].parent_posterior(q["parts"]["value"])[..., 1:].sum(dim=-2)
    return BoundTrace(
        log_pixels=p["pixels"]["log_prob"],
        log_parts=p["parts"]["log_prob"],
        log_objects=p["y0"]["log_prob"] + p["A0"]["log_prob"],
        entropy=-sum(q[name]["log_prob"] for name in ("parts", "y0", "A0")),
        parts=q["parts"]["value"],
        y0=q["y0"]["value"],
        object_logits=q["y0"]["fn"].base_dist.logits,
        object_poses=q["A0"]["value"],
        error=((images[:, 0] - mean) ** 2).sum((-1, -2)),
        children=children,
    )
