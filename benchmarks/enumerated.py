"""The probabilistic capsule model in another form: the parent `s` of each part is an explicit Pyro site, and
`TraceEnum_ELBO` sums over it.

This module does not use `model.hierarchy`, which sums over `s` itself. With the same parameters, both must give the
same bound: tests compare the values, and a benchmark compares the times. Shapes: B images, P parts, O objects.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceEnum_ELBO
from torch import Tensor

from pipeline.systems.generative.model.generative_model import GenerativeModel


def relaxed_presence(logits: Tensor, temperature: float) -> dist.Logistic:
    """Distribution of the logit of a binary concrete variable: logistic, location logits / tau, scale 1 / tau."""
    return dist.Logistic(logits / temperature, 1 / temperature, validate_args=False)


class PartGivenParent(dist.TorchDistribution):
    """A part given its parent: presence logit y, then pose offset A, event shape `[7]`.

    With t = sigmoid(y), the log density is log p(y) + t log N(A; mean, c) + (1 - t) log N(A; off_mean, off_sd). p is
    the `relaxed_presence` of `gamma`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False

    def __init__(self, gamma: Tensor, mean: Tensor, c: Tensor, off_mean: Tensor, off_sd: float, tau: float) -> None:
        self.presence = relaxed_presence(gamma, tau)
        self.on = dist.Normal(mean, c.unsqueeze(-1).expand_as(mean), validate_args=False)
        self.off = dist.Normal(off_mean, off_sd, validate_args=False)
        super().__init__(gamma.shape, torch.Size([7]), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        y, A = value[..., 0], value[..., 1:]
        t = torch.sigmoid(y)
        on, off = self.on.log_prob(A).sum(-1), self.off.log_prob(A).sum(-1)
        return self.presence.log_prob(y) + t * on + (1 - t) * off


class EnumeratedModel:
    """`GenerativeModel` with an explicit site for `s`. It shares the parameters of `model`."""

    def __init__(self, model: GenerativeModel) -> None:
        self.capsules = model

    def model(self, images: Tensor, noise: Tensor) -> None:
        m, p = self.capsules, self.capsules.params
        with pyro.plate("images", len(images), dim=-2):
            presence = images.new_full((len(images), 1, p.objects), p.object_presence)
            prior = relaxed_presence(presence.logit(), p.temperature)
            y0 = pyro.sample("y0", prior.to_event(1)).squeeze(1)
            zeros = images.new_zeros(len(images), 1, p.objects, 6)
            A0 = pyro.sample("A0", dist.Normal(zeros, 1.0).to_event(2)).squeeze(1)
            one = images.new_ones(len(images), 1)
            t0 = torch.cat([one, torch.sigmoid(y0)], dim=-1)  # (B, 1 + O): the dummy parent first, always present
            rho = m.log_affinity.exp()  # (P, 1 + O)
            weights = rho * t0.unsqueeze(1)
            pi = weights / weights.sum(-1, keepdim=True)  # (B, P, 1 + O)
            with pyro.plate("parts_of_image", p.parts, dim=-1):
                s = pyro.sample("s", dist.Categorical(pi, validate_args=False), infer={"enumerate": "parallel"})
                row = torch.arange(p.parts, device=images.device)
                # Votes (I + A_i) M_ij in homogeneous coordinates. The dummy parent's vote is the part's initial pose.
                parents = _homogeneous(A0).unsqueeze(2)  # (B, O, 1, 3, 3)
                identity = torch.eye(2, 3, dtype=images.dtype, device=images.device)
                votes = (parents @ _homogeneous(m.M))[..., :2, :] - identity
                votes = votes.flatten(-2).transpose(1, 2)  # (B, P, O, 6)
                dummy = m.initial_pose.expand(len(images), 1, -1, -1).transpose(1, 2)
                votes = torch.cat([dummy, votes], dim=2)
                batch = torch.arange(len(images), device=images.device).unsqueeze(-1)
                part = PartGivenParent(
                    m.gamma[row, s], votes[batch, row, s], m.c[row, s],
                    m.inactive_pose, p.inactive_pose_sd, p.temperature,
                )  # fmt: skip
                state = pyro.sample("parts", part)
            mean = m.draw(state.reshape(len(images), p.parts, 7)).unsqueeze(1)
            pyro.sample("pixels", dist.Normal(mean, p.pixel_sd).to_event(2), obs=images)

    def guide(self, images: Tensor, noise: Tensor) -> None:
        """The amortised guide, with sites in the shapes of `model`. `noise [B, P + O]` is standard logistic."""
        m, p = self.capsules, self.capsules.params
        tau = p.temperature
        logits1, A1 = m.encode_parts(images)
        y1 = (logits1 + noise[:, : p.parts]) / tau
        logits0, A0 = m.encode_objects(y1, A1)
        y0 = (logits0 + noise[:, p.parts :]) / tau
        log_q1 = relaxed_presence(logits1, tau).log_prob(y1)  # (B, P)
        log_q0 = relaxed_presence(logits0, tau).log_prob(y0).sum(-1)  # (B,)
        with pyro.plate("images", len(images), dim=-2):
            pyro.sample("y0", dist.Delta(y0.unsqueeze(1), log_density=log_q0.unsqueeze(1), event_dim=1))
            pyro.sample("A0", dist.Delta(A0.unsqueeze(1), event_dim=2))
            with pyro.plate("parts_of_image", p.parts, dim=-1):
                state = torch.cat([y1.unsqueeze(-1), A1], dim=-1)
                pyro.sample("parts", dist.Delta(state, log_density=log_q1, event_dim=1))

    def loss(self, images: Tensor, noise: Tensor) -> Tensor:
        """The negative bound in nats, summed over `images [B, 1, S, S]`, differentiable. `noise` as for `guide`."""
        elbo = TraceEnum_ELBO(max_plate_nesting=2, strict_enumeration_warning=False)
        return elbo.differentiable_loss(self.model, self.guide, images, noise)


def _homogeneous(A: Tensor) -> Tensor:
    """Poses I + A of offsets `A [..., 6]` as matrices `[..., 3, 3]` of homogeneous coordinates."""
    matrix = A.unflatten(-1, (2, 3)) + torch.eye(2, 3, dtype=A.dtype, device=A.device)
    last = A.new_tensor([0.0, 0.0, 1.0]).expand(*matrix.shape[:-2], 1, 3)
    return torch.cat([matrix, last], dim=-2)
