"""Stacked capsule autoencoder (Kosiorek et al. 2019), a baseline in Figure 4 of document 000.

The loss is the sum of two negative log-likelihoods (of pixels, and of part poses) and penalties. The gradient of the
second likelihood does not reach the part poses, so training does not maximise the likelihood of one generative model:

    d_m, A_m, z_m = CNN(x)                                          part m: presence, pose, features
    p(x_ij) = sum_m p_m,ij N(x_ij; c_m T_m,ij, 1)                   pixel ij: a mixture of templates and a background;
        p_m,ij proportional to d_m exp(alpha_m,ij)                  T, alpha: warped templates and mixing logits; c_m:
                                                                    colour, computed from z_m
    a_k, V_k, a_km, D_km, sigma_km = set transformer({parts})       object k: presence, pose; and for its vote for part
                                                                    m: presence, deformation, sd
    p(A_m) = sum_k a_k a_km N(A_m; V_k (static_km + D_km), sigma_km) + a dummy of fixed weight and density

The numbers static_km are parameters. `constrained_pose` converts static_km + D_km to a pose. Constants and details are
as in the authors' code. Two details are unexpected. First, the weights a_k a_km of votes do not sum to 1, so p(A_m) is
not a density. Second, the setting `attention: published` subtracts 1e32 (1 - d_m) from the attention scores of part m.
So a query attends only to the part with the largest d_m, or to all parts whose d_m rounds to 1. `attention: presence`
adds log d_m instead. Training uses no labels. Classifiers are fit after training (the authors fit them during it, but
without gradients to the model).

Shapes: B images `[B, 1, S, S]` in [0, 1], P parts, O objects. Poses are offsets from the identity (`layers.poses`).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from pipeline.layers import poses
from pipeline.layers.attention import AttentionPooling, PerElement
from pipeline.layers.poses import POSE_SIZE
from pipeline.layers.rendering import warp_templates
from pipeline.learning.model import Model
from pipeline.systems.scae.settings import SCAEModelParams

_LOG_2PI = math.log(2 * math.pi)
_DUMMY = -2 * math.log(10.0)
"""Log weight of the dummy, and also its log density at any pose. The dummy explains parts that no object explains."""
_SMALLEST = 1e-16
_HIDDEN, _COLOUR = 128, 32
"""Number of hidden units of the networks that process an object's code, and of the network for a part's colour."""


@dataclass(frozen=True)
class PartCapsules:
    """Part capsules of a batch."""

    presence: Tensor  # (B, P), in (0, 1)
    poses: Tensor  # (B, P, 6)
    features: Tensor  # (B, P, part_features)


@dataclass(frozen=True)
class Objects:
    """Object capsules of a batch, and their predictions of the parts."""

    votes: Tensor  # (B, O, P, 6)
    vote_presence: Tensor  # (B, O, P), a_k a_km
    vote_sd: Tensor  # (B, O, P)
    deformation: Tensor  # (B, O, P, 6), D_km

    @property
    def presence(self) -> Tensor:
        """Prior presences `[B, O]`: the largest presence of an object's votes, a_k max_m a_km."""
        return self.vote_presence.amax(-1)


def constrained_pose(x: Tensor) -> Tensor:
    """Map unconstrained numbers x `[..., 6]` to poses `[..., 6]`. Each of the six numbers determines one property, in
    this order: two scales sigmoid(x) + 0.01, an angle 2 pi x, a shear tanh(5 x), and two shifts tanh(5 x).
    """
    raw_sx, raw_sy, turns, raw_shear, raw_x, raw_y = x.unbind(-1)
    sx, sy = raw_sx.sigmoid() + 0.01, raw_sy.sigmoid() + 0.01
    shear, move_x, move_y = ((5 * raw).tanh() for raw in (raw_shear, raw_x, raw_y))
    cos, sin = (2 * math.pi * turns).cos(), (2 * math.pi * turns).sin()
    rows = [sx * cos + shear * sy * sin, -sx * sin + shear * sy * cos, move_x, sy * sin, sy * cos, move_y]
    return poses.to_offset(torch.stack(rows, dim=-1).unflatten(-1, (2, 3)))


def entropy_sparsity(presence: Tensor) -> tuple[Tensor, Tensor]:
    """Two entropies (nats) of objects' shares of the total presence, for `presence [B, O]`. The first is the entropy of
    the shares in one image, averaged over images. The second is that of the shares in the sum over all images.
    """

    def entropy(share: Tensor) -> Tensor:
        return -torch.xlogy(share, share.clamp_min(_SMALLEST)).sum(-1)

    within = presence / presence.sum(-1, keepdim=True).clamp_min(_SMALLEST)
    total = presence.sum(0)
    return entropy(within).mean(), entropy(total / total.sum().clamp_min(_SMALLEST))


def squared_sparsity(presence: Tensor, per_image: float, classes: int) -> tuple[Tensor, Tensor]:
    """Two mean squared differences for `presence [B, O]`. The first compares the sum over objects with `per_image`, and
    is a mean over images. The second compares the sum over images with B / `classes`, and is a mean over objects.
    """
    within = (presence.sum(1) - per_image).square().mean()
    return within, (presence.sum(0) - len(presence) / classes).square().mean()


class Attention(nn.Module):
    """Single-head attention of queries `[B, n, d]` or `[n, d]` to parts `[B, P, d]` with presences `[B, P]`. The
    result is `[B, n, d]`. The docstring of this file explains the two values of `mask`, "published" and "presence".
    """

    def __init__(self, width: int, mask: str) -> None:
        super().__init__()
        self.mask = mask
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, queries: Tensor, parts: Tensor, presence: Tensor) -> Tensor:
        scores = self.query(queries) @ self.key(parts).transpose(-1, -2) / math.sqrt(queries.shape[-1])
        mask = (presence - 1) * 1e32 if self.mask == "published" else presence.clamp_min(_SMALLEST).log()
        scores = scores + mask.unsqueeze(-2)
        return self.out(scores.softmax(-1) @ self.value(parts))


class SelfAttention(nn.Module):
    """Self-attention (one head) of parts `[B, P, d]`, then an MLP. Both have a residual connection and a LayerNorm."""

    def __init__(self, width: int, mask: str) -> None:
        super().__init__()
        self.attention = Attention(width, mask)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, presence: Tensor) -> Tensor:
        y = self.norm_attention((x + self.attention(x, x, presence)) * presence.unsqueeze(-1))
        return self.norm_feed(y + self.feed(y))


class SCAE(Model):
    """Stacked capsule autoencoder.

    Args:
        params: sizes and weights of the loss.
        image_size: side S of the square images, in pixels.
    """

    batch_statistics = frozenset({"sparsity"})
    keeps_last = True  # the loss is lowest too early. Later, parts are sharper, although objects predict them less well

    def __init__(self, params: SCAEModelParams, image_size: int) -> None:
        super().__init__()
        self.params, self.image_size = params, image_size
        P, O, width = params.parts, params.objects, params.channels
        self.noise_size = P + O + O * P

        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
            nn.Conv2d(width, width, 3), nn.ReLU(),
            nn.Conv2d(width, width, 3), nn.ReLU(),
        )  # fmt: skip
        with torch.no_grad():
            embedded = self.convolutions(torch.zeros(1, 1, image_size, image_size)).shape[1:]
        self.place = nn.Parameter(torch.zeros(embedded))
        self.pooling = AttentionPooling(width, P, POSE_SIZE + 1 + params.part_features)

        size = params.template_size
        # Initial logits are rows of a random orthogonal matrix, rescaled to [0, 1]. Templates are the logits' sigmoids.
        count = max(P, size * size)
        orthogonal = torch.linalg.qr(torch.rand(count, count))[0][:P, : size * size]
        low, high = orthogonal.min(), orthogonal.max()
        self.template_logits = nn.Parameter(((orthogonal - low) / (high - low)).unflatten(-1, (size, size)))
        self.mixing_logits = nn.Parameter(torch.zeros(P, size, size))
        self.colour = nn.Sequential(nn.Linear(params.part_features, _COLOUR), nn.ReLU(), nn.Linear(_COLOUR, 1))
        self.background = nn.Parameter(torch.zeros(1))  # logit of the intensity
        self.background_mixing = nn.Parameter(torch.zeros(1))  # the mixing logit before softplus

        self.embed = nn.Linear(POSE_SIZE + 1 + params.part_features + size * size, params.hidden)
        self.blocks = nn.ModuleList(SelfAttention(params.hidden, params.attention) for _ in range(params.blocks))
        self.widen = nn.Linear(params.hidden, params.code)
        self.seeds = nn.Parameter(_uniform(math.sqrt(6 / (O + params.code)), O, params.code))
        self.pool = Attention(params.code, params.attention)

        gain = math.sqrt(3.0)  # uniform weights in +-gain / sqrt(inputs) have variance 1 / inputs
        self.summarise = nn.Sequential(
            PerElement(O, params.code, _HIDDEN, gain), nn.ReLU(), PerElement(O, _HIDDEN, params.object_features, gain)
        )
        # Outputs per object: a deformation for each part, the object's pose and presence, then a presence and an sd for
        # each part. Deformations need no bias: they are added to the static poses, which are parameters.
        outputs = P * POSE_SIZE + POSE_SIZE + 1 + 2 * P
        self.hidden = PerElement(O, params.object_features + 1, _HIDDEN, gain)
        self.outputs = nn.Parameter(_uniform(gain / math.sqrt(_HIDDEN), O, _HIDDEN, outputs))
        self.output_bias = nn.Parameter(torch.zeros(O, outputs - P * POSE_SIZE))
        self.static_poses = nn.Parameter(_uniform(math.sqrt(6 / (O * (P + POSE_SIZE))), O, P, POSE_SIZE))
        self.apply(_initialise)

    def generative_parameters(self) -> int:
        """Number of parameters of the decoders: templates, colours, background and static poses."""
        decoders = (self.template_logits, self.mixing_logits, self.background, self.background_mixing)
        return sum(p.numel() for p in (*decoders, *self.colour.parameters(), self.static_poses))

    # ---- parts

    def encode_parts(self, images: Tensor, noise: Tensor | None = None) -> PartCapsules:
        """Encode parts. `noise [B, P]`, uniform in [-1, 1], times `presence_noise` is added to the presence logits."""
        pooled = self.pooling(self.convolutions(images) + self.place)
        free, features, logits = pooled.split([POSE_SIZE, self.params.part_features, 1], dim=-1)
        logits = logits.squeeze(-1)
        if noise is not None:
            logits = logits + self.params.presence_noise * noise
        return PartCapsules(logits.sigmoid(), constrained_pose(free), features)

    def coloured_templates(self, parts: PartCapsules) -> Tensor:
        """Templates in each image's colours, `[B, P, h, w]`, where h and w are the sides of a template."""
        return self.template_logits.sigmoid() * self.colour(parts.features).sigmoid().unsqueeze(-1)

    def explain_pixels(self, images: Tensor, parts: PartCapsules) -> tuple[Tensor, Tensor]:
        """Log densities of images `[B, 1, S, S]`. The density of a pixel is a mixture of templates and a background.

        Returns:
            the log density of each image, `[B]`, in nats; and the mean of each pixel, `[B, S, S]`, without gradient.
        """
        coloured = self.coloured_templates(parts)
        both = torch.stack([coloured, self.mixing_logits.expand_as(coloured)], dim=2)  # (B, P, 2, h, w)
        mean, logits = warp_templates(both, parts.poses, self.image_size).unbind(2)  # (B, P, S, S)
        # Matrix products sum the exponentials over parts. This is faster than two calls of logsumexp. No sum underflows
        # to 0, because the background's weight is at least 1, and its squared errors are at most 1.
        presence = parts.presence.clamp_min(_SMALLEST).unsqueeze(1)  # (B, 1, P)

        def over_parts(layers: Tensor) -> Tensor:
            return (presence @ layers.flatten(2)).squeeze(1).unflatten(1, layers.shape[2:])  # (B, S, S)

        mixing, density = logits.exp(), (-0.5 * (images - mean).square()).exp()
        behind, behind_weight = self.background.sigmoid(), F.softplus(self.background_mixing).exp()
        weight = over_parts(mixing) + behind_weight
        explained = over_parts(mixing * density)
        unexplained = behind_weight * (-0.5 * (images[:, 0] - behind).square()).exp()
        log_density = (explained + unexplained).log() - weight.log() - 0.5 * _LOG_2PI
        with torch.no_grad():
            drawn = (over_parts(mixing * mean) + behind_weight * behind) / weight
        return log_density.sum((-1, -2)), drawn

    # ---- objects

    def encode_objects(self, parts: PartCapsules, noise: Tensor | None = None) -> Objects:
        """Encode objects from parts. `noise [B, O + O * P]`, uniform in [-1, 1], times `presence_noise` is added to the
        presence logits of objects and votes. Gradients reach the features of parts, but not the presences and poses of
        parts, and not the templates.
        """
        P, O = self.params.parts, self.params.objects
        presence, A = parts.presence.detach(), parts.poses.detach()
        matrix = poses.to_matrix(A).flatten(-2)
        templates = self.coloured_templates(parts).detach().flatten(-2)
        x = self.embed(torch.cat([matrix, 1 - presence.unsqueeze(-1), parts.features, templates], dim=-1))
        for block in self.blocks:
            x = block(x, presence)
        code = self.pool(self.seeds, self.widen(x), presence)  # (B, O, code)
        summary = self.summarise(code)
        hidden = self.hidden(torch.cat([summary, torch.ones_like(summary[..., :1])], dim=-1)).relu()
        out = torch.einsum("boh,ohk->bok", hidden, self.outputs)
        deformation = out[..., : P * POSE_SIZE].unflatten(-1, (P, POSE_SIZE))
        rest = out[..., P * POSE_SIZE :] + self.output_bias
        pose, logit, part_logits, sd = rest.split([POSE_SIZE, 1, P, P], dim=-1)
        if noise is not None:
            own, each = (self.params.presence_noise * noise).split([O, O * P], dim=-1)
            logit, part_logits = logit + own.unsqueeze(-1), part_logits + each.unflatten(-1, (O, P))
        object_pose = poses.to_matrix(constrained_pose(pose)).unsqueeze(-3)  # (B, O, 1, 2, 3)
        part_pose = poses.to_matrix(constrained_pose(self.static_poses + deformation))
        votes = poses.to_offset(poses.compose(object_pose, part_pose))
        return Objects(votes, logit.sigmoid() * part_logits.sigmoid(), F.softplus(sd + 0.5) + 0.01, deformation)

    def part_explanations(self, parts: PartCapsules, objects: Objects) -> Tensor:
        """Log weight plus log density of each part's pose under each object and (last) the dummy: `[B, O + 1, P]`."""
        squared = (parts.poses.detach().unsqueeze(1) - objects.votes).square().sum(-1)
        density = -0.5 * squared / objects.vote_sd**2 - POSE_SIZE * (objects.vote_sd.log() + 0.5 * _LOG_2PI)
        explained = objects.vote_presence.clamp_min(_SMALLEST).log() + density
        return F.pad(explained, (0, 0, 0, 1), value=2 * _DUMMY)

    @staticmethod
    def posterior_presence(explanations: Tensor) -> Tensor:
        """Expected number of parts that each object explains, `[B, O]`, from `part_explanations [B, O + 1, P]`."""
        return explanations.softmax(1)[:, :-1].sum(-1)

    # ---- what training needs

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Features `[B, O]` for probes by name, for images `[B, 1, S, S]` without noise. "prior" has the presences of
        objects (`Objects.presence`), "posterior" has the expected number of parts that each object explains.
        """
        parts = self.encode_parts(images)
        objects = self.encode_objects(parts)
        return {"prior": objects.presence, "posterior": self.posterior_presence(self.part_explanations(parts, objects))}

    def draw_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Noise for `shape` images, `[*shape, noise_size]`, uniform in [-1, 1]."""
        return torch.rand((*shape, self.noise_size), generator=generator, device=generator.device) * 2 - 1

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of images `[B, 1, S, S]`, in nats, and metrics by name. `epoch` and `labels` are unused.
        The loss depends on the batch size, because two sparsity terms are computed from sums over the batch.
        """
        params, P = self.params, self.params.parts
        parts = self.encode_parts(images, noise[:, :P])
        objects = self.encode_objects(parts, noise[:, P:])
        log_pixels, drawn = self.explain_pixels(images, parts)
        explanations = self.part_explanations(parts, objects)
        log_parts = (explanations.logsumexp(1) * parts.presence.detach()).sum(-1)
        deformation = 0.5 * objects.deformation.square().sum((-1, -2, -3))
        posterior_within, posterior_between = entropy_sparsity(self.posterior_presence(explanations))
        prior_within, prior_between = squared_sparsity(objects.presence, params.prior_sum, params.classes)
        sparsity = (
            params.posterior_within * posterior_within - params.posterior_between * posterior_between
            + params.prior_within * prior_within + params.prior_between * prior_between
        )  # fmt: skip
        loss = -log_pixels.mean() - log_parts.mean() + params.deformation * deformation.mean() + sparsity
        error = (images[:, 0] - drawn).square().sum((-1, -2))
        metrics = {
            "log_pixels": log_pixels.mean(), "log_parts": log_parts.mean(), "deformation": deformation.mean(),
            "sparsity": sparsity, "pixel_error": error.mean(),
            "parts_on": parts.presence.mean(), "objects_on": objects.presence.mean(),
        }  # fmt: skip
        return loss, {name: value.detach() for name, value in metrics.items()}


def _uniform(bound: float, *shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound)


def _initialise(module: nn.Module) -> None:
    """Draw normal weights (sd inputs^-1/2, truncated at two sds) and set biases to 0, as in the authors' framework."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        inputs = module.weight[0].numel()
        nn.init.trunc_normal_(module.weight, std=inputs**-0.5, a=-2 * inputs**-0.5, b=2 * inputs**-0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
