"""Top-down attention as a generative model of parts (document 001, section 4), and random scenes from this model.

Object capsules j = 1..n with poses z_j predict the pose of each part i = 1..m by matrices W_ij:

    U_ij = W_ij z_j                                                                          (section 4.1)

Each part attends to its n predictions. In the document, iterations of this attention select one parent, and scale is 1:

    V_i <- softmax_j(scale V_i^T U_ij) U_i                                                   (equation 6)

Equation 7 turns attention into a density of the part's pose V_i, a mixture of Gaussians around the predictions. In the
document, the mixture's weights are a softmax of von Mises-Fisher (VMF) densities. In this module they are a softmax of
log densities. A log VMF density is linear in a scalar product with the direction of a prediction, just as a score in
equation 6 is a scalar product with a prediction. In the document, weights and Gaussians depend on the same pose V_i.
The mixture then does not integrate to one. Its integral is nearly n if the direction of a part's pose nearly always
shows the part's parent (`literal_mass`). The integral is one if the weights depend on another variable, such as the
*previous* pose in equation 6. Here, this variable is a cue q_i, the direction in which to look for the part. A part
with parent s_i has two observed variables, its cue and its pose:

    s_i ~ prior,   q_i | s_i = j ~ VMF(U_ij / |U_ij|, kappa_j),   V_i | s_i = j ~ N(U_ij, sigma_j^2 I)

Given the cue, the parent has the probabilities softmax_j(log prior_j + log VMF(q_i; U_ij, kappa_j)). These are the
weights p_(i) of equation 7. With the parent summed out, the pose given the cue has the density of equation 7. Clutter
(parts without a parent) is one more component, with prediction zero, kappa zero and a large sd.

Shapes: B scenes, m parts with poses of d numbers, n objects with poses of D numbers; with clutter, n + 1 components.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from pipeline.systems.attention.model import von_mises_fisher


@dataclass(frozen=True)
class Components:
    """The n mixture components of a part, one for each possible parent. Here n includes clutter. Tensors are broadcast.

    Attributes:
        predictions: the predictions U, `[..., n, d]`.
        kappa: concentration of cues around the directions of the predictions, `[n]`.
        sigma: sd of poses around the predictions, in units of the pose, `[n]`.
        log_prior: log of the prior probabilities of the parents, `[n]` or `[..., n]`. Probabilities sum to one.
    """

    predictions: Tensor
    kappa: Tensor
    sigma: Tensor
    log_prior: Tensor

    @property
    def directions(self) -> Tensor:
        """Unit vectors `[..., n, d]` along the predictions, zero for a prediction of zero."""
        # The code multiplies by 1 / length, because the backward pass of a division takes three times as long.
        squares = self.predictions.square().sum(-1, keepdim=True)
        return self.predictions * squares.clamp_min(torch.finfo(squares.dtype).tiny).rsqrt()

    def log_cues(self, cues: Tensor) -> Tensor:
        """log VMF density of unit vectors `[..., d]` under every component: `[..., n]`."""
        return von_mises_fisher.log_density(cues.unsqueeze(-2), self.directions, self.kappa)

    def log_poses(self, parts: Tensor) -> Tensor:
        """log normal density of poses `[..., d]` under every component: `[..., n]`."""
        squares = (parts.unsqueeze(-2) - self.predictions).square().sum(-1)
        d = parts.shape[-1]
        return squares * (-0.5 / self.sigma**2) - d * (self.sigma.log() + 0.5 * math.log(2 * math.pi))

    def log_weights(self, cues: Tensor | None) -> Tensor:
        """Logs `[..., n]` of equation 7's mixing weights given cues `[..., d]`. Without cues, the log prior."""
        return self.log_prior if cues is None else (self.log_prior + self.log_cues(cues)).log_softmax(-1)

    def log_printed_weights(self, cues: Tensor) -> Tensor:
        """Logs of the weights as printed in equation 7, a softmax of von Mises-Fisher densities: `[..., n]`."""
        log_densities = self.log_cues(cues)
        largest = log_densities.amax(-1, keepdim=True)
        # A softmax does not change if the largest density is subtracted from all densities. For a log density l and the
        # largest log density m, the difference is exp(l) - exp(m) = exp(m) expm1(l - m).
        most = math.log(torch.finfo(largest.dtype).max) - 1  # a cap on m, against overflow
        return (largest.clamp_max(most).exp() * (log_densities - largest).expm1()).log_softmax(-1)

    def parents(self, parts: Tensor, cues: Tensor | None) -> Tensor:
        """P(s | V, q), the posterior of the parent given pose and cue, or P(s | V) without a cue: `[..., n]`."""
        return (self.log_weights(cues) + self.log_poses(parts)).softmax(-1)

    def log_cue_density(self, cues: Tensor) -> Tensor:
        """log p(q) of cues `[..., d]`, with parents summed out: `[...]`, in nats."""
        return (self.log_prior + self.log_cues(cues)).logsumexp(-1)

    def log_pose_density(self, parts: Tensor, cues: Tensor | None) -> Tensor:
        """Equation 7: log p(V | q) of poses `[..., d]`, with parents summed out: `[...]`, in nats."""
        return (self.log_weights(cues) + self.log_poses(parts)).logsumexp(-1)

    def sample_cues(self, count: int) -> Tensor:
        """Cues `[count, d]` of a part. Parents are drawn from the prior, then cues around the directions of the
        parents' predictions. SciPy draws the cues, with a seed from torch's generator.
        """
        parents = Categorical(logits=self.log_prior).sample((count,))
        random = np.random.default_rng(int(torch.randint(2**62, ())))
        means, kappa = (each[parents].double().numpy() for each in (self.directions, self.kappa))
        return torch.from_numpy(von_mises_fisher.sample(means, kappa, random)).to(self.predictions)

    def sample_poses(self, count: int, cue: Tensor) -> Tensor:
        """Poses `[count, d]` of a part with the cue `[d]`. Parents are drawn, then poses around their predictions."""
        parents = Categorical(logits=self.log_weights(cue)).sample((count,))
        means = self.predictions[parents]
        return means + self.sigma[parents].unsqueeze(-1) * torch.randn_like(means)


@dataclass(frozen=True)
class Hierarchy:
    """Two layers of capsules and the parameters between them.

    Attributes:
        W: matrices that predict the poses of parts from those of objects, `[m, n, d, D]`.
        kappa: concentration of cues around an object's prediction, `[n]`, or `[1]` for all objects.
        sigma: sd of poses around an object's prediction, `[n]` or `[1]`.
        clutter: prior probability that a part has no parent.
        clutter_sd: sd of the poses of parts without a parent.
        object_sd: sd of the objects' poses.
    """

    W: Tensor
    kappa: Tensor
    sigma: Tensor
    clutter: float
    clutter_sd: float
    object_sd: float

    def predictions(self, poses: Tensor) -> Tensor:
        """Predictions U for object poses `[..., n, D]`: `[..., m, n, d]`."""
        return torch.einsum("ijab,...jb->...ija", self.W, poses)

    def votes(self, parts: Tensor) -> Tensor:
        """Votes `[B, m, n, D]`: the object poses that predict each of `parts [B, m, d]` best, by least squares."""
        return torch.einsum("ijab,...ib->...ija", torch.linalg.pinv(self.W), parts)

    def components(self, poses: Tensor, present: Tensor | None = None) -> Components:
        """Mixture components for object poses `[..., n, D]`, with predictions `[..., m, n + 1, d]`. Clutter is last.
        Objects in the mask `present [..., n]` (by default all) have equal prior probabilities, absent objects have 0.
        """
        U = self.predictions(poses)
        nothing = torch.zeros_like(U[..., :1, :])
        n = self.W.shape[1]
        there = U.new_ones(n) if present is None else present.to(U).unsqueeze(-2)  # the same for all parts
        share = (1 - self.clutter) * there / there.sum(-1, keepdim=True)
        return Components(
            torch.cat([U, nothing], dim=-2),
            torch.cat([self.kappa.expand(n), U.new_zeros(1)]),
            torch.cat([self.sigma.expand(n), U.new_full((1,), self.clutter_sd)]),
            torch.cat([share, share.new_full((*share.shape[:-1], 1), self.clutter)], dim=-1).log(),
        )

    def log_joint(self, poses: Tensor, parts: Tensor, cues: Tensor | None) -> Tensor:
        """log p(z, q, V) of scenes, `[...]`, in nats, for object poses z `[..., n, D]`, and cues q and part poses V
        `[..., m, d]`. Without cues, it is log p(z, V), and equation 7's weights are the prior probabilities of parents.
        """
        components = self.components(poses)
        joint = Normal(torch.zeros_like(poses), self.object_sd).log_prob(poses).flatten(-2).sum(-1)
        if cues is not None:
            joint = joint + components.log_cue_density(cues).sum(-1)
        return joint + components.log_pose_density(parts, cues).sum(-1)


@dataclass(frozen=True)
class Scenes:
    """B random scenes of m parts.

    Attributes:
        parts: poses of the parts, `[B, m, d]`.
        cues: cues of the parts, unit vectors `[B, m, d]`.
        parents: index of each part's parent, `[B, m]`. It is n for clutter.
        poses: poses of all objects, present or absent, `[B, n, D]`.
        present: mask of the objects in the scene, `[B, n]`.
    """

    parts: Tensor
    cues: Tensor
    parents: Tensor
    poses: Tensor
    present: Tensor


def orthogonal_transforms(parts: int, objects: int, dimensions: int, random: np.random.Generator) -> Tensor:
    """W `[m, n, d, d]`: uniformly random orthogonal matrices, so that predictions are as long as the object's pose."""
    gaussian = random.normal(size=(parts, objects, dimensions, dimensions))
    q, r = np.linalg.qr(gaussian)
    return torch.from_numpy(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]).float()


def plant(hierarchy: Hierarchy, count: int, shown: int, random: np.random.Generator) -> Scenes:
    """`count` scenes of `shown` objects each. A part is clutter, or its parent is drawn uniformly from these objects.
    Given which objects are present, the scenes are samples of the hierarchy's model.
    """
    W = hierarchy.W
    m, n, _, D = W.shape
    poses = torch.from_numpy(random.normal(0.0, hierarchy.object_sd, (count, n, D)))
    order = np.argsort(random.random((count, n)), axis=1)[:, :shown]  # the objects shown
    parents = np.take_along_axis(order, random.integers(shown, size=(count, m)), axis=1)
    parents = np.where(random.random((count, m)) < hierarchy.clutter, n, parents)
    present = np.zeros((count, n), bool)
    np.put_along_axis(present, order, True, axis=1)
    components = hierarchy.components(poses.to(W))
    U, directions = (
        np.take_along_axis(each.double().numpy(), parents[..., None, None], axis=2)[:, :, 0]  # of the parts' parents
        for each in (components.predictions, components.directions)
    )
    kappa, sigma = (each.double().numpy()[parents] for each in (components.kappa, components.sigma))
    parts = torch.from_numpy(U + sigma[..., None] * random.normal(size=U.shape)).to(W)
    drawn = von_mises_fisher.sample(directions.reshape(count * m, -1), kappa.ravel(), random)
    cues = torch.from_numpy(drawn).to(W).view_as(parts)
    return Scenes(parts, cues, torch.from_numpy(parents), poses.to(W), torch.from_numpy(present))


def iterate_attention(parts: Tensor, predictions: Tensor, iterations: int, scale: float) -> Tensor:
    """Attention weights `[T, ..., m, n]` in each of T iterations of equation 6, from initial poses of parts
    `[..., m, d]` and predictions `[..., m, n, d]`. `scale` multiplies the scores. In the document it is 1.
    """
    found = []
    for _ in range(iterations):
        found.append((scale * torch.einsum("...id,...ijd->...ij", parts, predictions)).softmax(-1))
        parts = torch.einsum("...ij,...ijd->...id", found[-1], predictions)
    return torch.stack(found)


def literal_mass(components: Components, samples: int) -> dict[str, float]:
    """Integral of equation 7 if a pose is its own cue, by Monte Carlo with `samples` draws from each component.

    With weights w_j and Gaussians N_j, the integral of sum_j w_j(V) N_j(V) is sum_j E[w_j(V_j)], where V_j has
    density N_j. In the result `literal`, w is a softmax of log densities. In `printed`, it is a softmax of densities.
    """
    U, sigma = components.predictions, components.sigma
    V = U + sigma.unsqueeze(-1) * torch.randn(samples, *U.shape, dtype=U.dtype)  # (samples, n, d), from each component
    cues = torch.nn.functional.normalize(V, dim=-1)
    log_weights = {"literal": components.log_weights(cues), "printed": components.log_printed_weights(cues)}
    return {name: float(each.exp().diagonal(dim1=1, dim2=2).sum(-1).mean()) for name, each in log_weights.items()}
