"""Capsule networks as a generative model: document 000 (Smith et al. 2020), section 2 and appendix B.

    t0_i ~ Bern(p), A0_i ~ N(0, I)                                  objects: presence, pose (equations 1, 2)
    s_j ~ Cat(rho_ij t0_i); the dummy parent, i = 0, is always on   parts: parent i = s_j, summed out (equation 3)
    t1_j ~ Bern(gamma_ij), A1_j ~ N((I + A0_i) M_ij, c_ij)          parts: presence, pose (equations 4 to 6)
    x ~ N(over-composited templates at (I + A1_j), sigma)           pixels (equation 7)

rho_ij is an affinity, M_ij the pose of part j in the frame of object i. Presences are relaxed at a temperature and kept
as logits `y`. Poses are offsets from the identity (`layers.poses`). The guide (approximate posterior) encodes parts by
convolutions, and objects from parts by a set transformer. The guide's poses are deltas or Gaussians (section 2.3).

Shapes: B images, O objects, P parts; images `[B, 1, S, S]` in [0, 1].
"""

import math
from collections.abc import Callable
from functools import partial

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from pipeline.layers import poses
from pipeline.layers.attention import AttentionPooling, PerElementMLP, SetTransformer
from pipeline.layers.poses import POSE_SIZE
from pipeline.layers.rendering import render
from pipeline.layers.traces import traced
from pipeline.learning.model import Model
from pipeline.systems.generative.model import arrangements
from pipeline.systems.generative.model.distributions import (
    BoundTrace,
    Capsules,
    GaussianPoses,
    PartPosterior,
    RelaxedPresence,
    inverse_softplus,
    join,
    joint_information,
    logistic_noise,
    presence_kl,
    scale_gradient,
)
from pipeline.systems.generative.model.hierarchy import ChildrenGivenParents, log_parent_probabilities, votes
from pipeline.systems.generative.settings import GenerativeModelParams

# Adam changes every parameter by about the step size, however large its gradient is. Logits of templates must change
# by several units, weights of layers by hundredths. So the template parameters are logits / gain. Without the gain, the
# encoder adapts to templates that are still noise. On digits, 12 epochs with it reach the bound of 35 epochs without.
TEMPLATE_GAIN = 20.0
TEMPLATE_INTENSITY, TEMPLATE_NOISE = 2.0, 0.4
"""Initial logit of the templates' intensity, and sd of the noise added to the logits of intensity and opacity."""
_BATCH = 256

Value = Tensor | float
"""A scalar tensor or a number."""


class GenerativeModel(Model):
    """Templates and two layers of capsules, with an encoder as guide. Images have `image_size` pixels per side."""

    batch_statistics = frozenset({"most_children", "objects_in_use", "presence_information"})

    def __init__(self, params: GenerativeModelParams, image_size: int) -> None:
        super().__init__()
        self.params, self.image_size = params, image_size
        O, P = params.objects, params.parts
        self.gaussian = params.pose_posterior == "gaussian"
        self.noise_size = (P + O) * (1 + POSE_SIZE if self.gaussian else 1)

        # The generative parameters, in the document's symbols. In the shape [P, 1 + O], the first index is the part and
        # the second the parent. Parent 0 is the dummy.
        size = params.template_size
        opacity = math.log(params.template_opacity / (1 - params.template_opacity))
        begin = torch.tensor([TEMPLATE_INTENSITY, opacity]).view(2, 1, 1) / TEMPLATE_GAIN
        self.template_weights = nn.Parameter(begin + torch.randn(P, 2, size, size) * TEMPLATE_NOISE / TEMPLATE_GAIN)
        # Learned affinities can give a part the same parent in every image. Presences then carry no information.
        self.log_rho: Tensor
        if params.affinities == "learned":
            self.log_rho = nn.Parameter(torch.zeros(P, O))
        else:
            self.register_buffer("log_rho", torch.zeros(P, O), persistent=False)
        self.gamma = nn.Parameter(torch.zeros(P, 1 + O))  # log odds
        self.M = nn.Parameter(poses.spread(P, params.template_scale).expand(O, P, POSE_SIZE).clone())  # offsets
        excess = torch.tensor(params.pose_sd_start - params.pose_sd_floor)
        self.c_excess = nn.Parameter(excess.expm1().log().expand(P, O).clone())  # c = floor + softplus(c_excess)

        self.register_buffer("initial_pose", poses.spread(P, params.template_scale), persistent=False)
        self.initial_pose: Tensor
        if params.inactive_pose == "mean":
            self.mean_pose = nn.Parameter(self.initial_pose.clone(), requires_grad=False)

        # The guide.
        width = params.channels
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ELU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ELU(),
        )  # fmt: skip
        self.pooling = AttentionPooling(width, P, params.part_features)
        self.part_head = PerElementMLP(P, params.part_features, params.hidden, 1 + POSE_SIZE, last_gain=0.1)
        self.embed = nn.Linear(1 + POSE_SIZE, params.hidden)
        self.part_identity = nn.Parameter(torch.randn(P, params.hidden) * 0.5)
        self.set_transformer = SetTransformer(
            params.hidden, params.heads, params.inducing, params.blocks, outputs=O, code=params.code
        )
        self.object_head = PerElementMLP(O, params.code, params.hidden, 1 + POSE_SIZE, last_gain=0.1)
        if self.gaussian:
            # These heads are built last, so that a seed gives all other weights the same values with and without them.
            # Their outputs start at zero. Every sd then starts at `pose_posterior_sd_start`.
            self.part_sd_head = PerElementMLP(P, params.part_features, params.hidden, POSE_SIZE, last_gain=0.0)
            self.object_sd_head = PerElementMLP(O, params.code, params.hidden, POSE_SIZE, last_gain=0.0)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.M.device

    @property
    def temperature(self) -> float:
        """The temperature for evaluation, `final_temperature`."""
        return self.params.final_temperature

    def temperature_at(self, epoch: Tensor) -> Tensor | float:
        """The temperature at `epoch` in training mode; `final_temperature` in evaluation mode."""
        first, last = self.params.temperature, self.params.final_temperature
        if first == last or not self.training:
            return last
        fallen = (epoch / max(self.params.temperature_epochs, 1e-6)).clamp(0, 1)
        return first * (last / first) ** fallen

    @property
    def templates(self) -> Tensor:
        """Intensity and opacity of the templates in [0, 1], `[P, 2, size, size]`."""
        return (TEMPLATE_GAIN * self.template_weights).sigmoid()

    @property
    def c(self) -> Tensor:
        """Sds c_ij of the parts' poses around their votes, `[P, 1 + O]`. Parent 0 is the dummy."""
        c = self.params.pose_sd_floor + F.softplus(self.c_excess)
        return F.pad(c, (1, 0), value=self.params.dummy_pose_sd)

    @property
    def log_affinity(self) -> Tensor:
        """Log affinities log rho_ij, `[P, 1 + O]`. Parent 0 is the dummy, whose affinity is fixed."""
        return F.pad(self.log_rho, (1, 0), value=math.log(self.params.dummy_affinity))

    @property
    def inactive_pose(self) -> Tensor:
        """Centre of an absent part's pose, `[P, 6]`."""
        if self.params.inactive_pose == "zero":
            return torch.zeros_like(self.initial_pose)
        return self.mean_pose if self.params.inactive_pose == "mean" else self.initial_pose

    def generative_parameters(self) -> int:
        """Number of parameters of the generative model, without the guide."""
        return sum(getattr(self, name).numel() for name in self.generative_names())

    def generative_names(self) -> list[str]:
        """Names of the parameters of p(x, y1, A1, y0, A0). All other parameters are the guide's."""
        names = ("template_weights", "log_rho", "gamma", "M", "c_excess", "mean_pose")
        return [name for name in names if isinstance(getattr(self, name, None), nn.Parameter)]

    def parts_given_objects(
        self, y0: Tensor, A0: Tensor, coupling: Value = 1.0, temperature: Value | None = None
    ) -> ChildrenGivenParents:
        """p(y1, A1 | y0, A0): the parts given objects with presence logits `y0 [B, O]` and poses `A0 [B, O, 6]`."""
        return ChildrenGivenParents(
            log_parent_probabilities(y0, self.log_affinity), self.gamma, votes(A0, self.M, self.initial_pose), self.c,
            self.inactive_pose, self.params.inactive_pose_sd, self.temperature if temperature is None else temperature,
            coupling, self.params.slots,
        )  # fmt: skip

    def draw(self, parts: Tensor) -> Tensor:
        """The image `[B, S, S]` of part states `[B, P, 7]`."""
        return render(self.templates, parts[..., 1:], parts[..., 0].sigmoid(), self.image_size)

    def model(
        self, images: Tensor | None, count: int, coupling: Value = 1.0, temperature: Value | None = None
    ) -> Tensor:
        """The generative process of `count` images as a Pyro model. It observes `images [count, 1, S, S]` if given, and
        returns the rendered mean images `[count, S, S]`. The `temperature` of presences must equal the guide's. Its
        default is the temperature for evaluation. `forward` explains `coupling`.
        """
        O, like = self.params.objects, self.M
        temperature = self.temperature if temperature is None else temperature
        with pyro.plate("images", count):
            p = torch.full((count, O), self.params.object_presence, dtype=like.dtype, device=like.device).logit()
            y0 = pyro.sample("y0", RelaxedPresence(p, temperature).to_event(1))
            A0 = pyro.sample("A0", dist.Normal(like.new_zeros(count, O, POSE_SIZE), like.new_ones(())).to_event(2))
            parts = pyro.sample("parts", self.parts_given_objects(y0, A0, coupling, temperature))
            mean = self.draw(parts)
            # The sd is a tensor on the device, because a Python number would be copied from the CPU at every step.
            pixels = dist.Normal(mean, mean.new_full((), self.params.pixel_sd))
            pyro.sample("pixels", pixels.to_event(2), obs=None if images is None else images[:, 0])
        return mean

    def encode_parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(y1, A1 | x): log odds `[B, P]` and poses `[B, P, 6]` (means if they are Gaussian)."""
        return self._read_parts(self.pooling(self.convolutions(images)))

    def encode_objects(self, y1: Tensor, A1: Tensor) -> tuple[Tensor, Tensor]:
        """q(y0, A0 | y1, A1): log odds `[B, O]` and poses `[B, O, 6]` (means if they are Gaussian)."""
        state = self.object_head(self._object_codes(y1, A1))
        return state[..., 0], state[..., 1:]

    def _read_parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        state = self.part_head(features)
        # With the offset 2, parts are present at the start. An absent part would get no gradient from the pixels.
        return state[..., 0] + 2.0, self.initial_pose + state[..., 1:]

    def _object_codes(self, y1: Tensor, A1: Tensor) -> Tensor:
        # The set transformer gets deviations from initial poses, because poses differ much more between parts than
        # between images. The factor 10 makes the deviations about as large as the presences.
        deviation = (A1 - self.initial_pose) * 10
        elements = self.embed(join(y1.sigmoid(), deviation)) + self.part_identity  # (B, P, hidden)
        return self.set_transformer(elements)  # (B, O, code)

    def pose_sd(self, raw: Tensor) -> Tensor:
        """Sds of Gaussian poses from the output `raw` of a head. An output of 0 gives `pose_posterior_sd_start`."""
        return F.softplus(raw + inverse_softplus(self.params.pose_posterior_sd_start))

    def guide(self, images: Tensor, noise: Tensor, coupling: Value = 1.0, temperature: Value | None = None) -> None:
        """The encoder's posterior as a Pyro guide. `noise [B, noise_size]` is from `draw_noise`."""
        P, O = self.params.parts, self.params.objects
        temperature = self.temperature if temperature is None else temperature
        if self.gaussian:
            pose_noise = noise[:, P + O :].unflatten(1, (P + O, POSE_SIZE))
        with pyro.plate("images", len(images)):
            features = self.pooling(self.convolutions(images))  # (B, P, part_features)
            y1, A1 = self._read_parts(features)
            if self.gaussian:
                A1 = GaussianPoses(A1, self.pose_sd(self.part_sd_head(features)), pose_noise[:, :P])
            parts = pyro.sample("parts", PartPosterior(RelaxedPresence(y1, temperature, noise[:, :P]), A1, coupling))
            seen = scale_gradient(parts, coupling)
            codes = self._object_codes(seen[..., 0], seen[..., 1:])
            state = self.object_head(codes)
            y0, A0 = state[..., 0], state[..., 1:]
            pyro.sample("y0", RelaxedPresence(y0, temperature, noise[:, P : P + O]).to_event(1))
            if self.gaussian:
                q = GaussianPoses(A0, self.pose_sd(self.object_sd_head(codes)), pose_noise[:, P:]).to_event(1)
            else:
                q = dist.Delta(A0, event_dim=2)
            pyro.sample("A0", q)

    def encode(self, images: Tensor) -> Capsules:
        """The parameters of the posterior of images `[B, 1, S, S]`. Objects are encoded from parts without noise."""
        y1, A1 = self.encode_parts(images)
        y0, A0 = self.encode_objects(y1 / self.temperature, A1)
        return Capsules(y1, A1, y0, A0)

    def states(self, posterior: Capsules) -> Tensor:
        """Part states `[B, P, 7]` without noise: presence logits (log odds / temperature), then poses."""
        return join(posterior.part_logits / self.temperature, posterior.part_poses)

    def routing(self, posterior: Capsules) -> Tensor:
        """The exact posterior over each part's parent, `[B, P, 1 + O]`, without noise. Parent 0 is the dummy."""
        layer = self.parts_given_objects(posterior.object_logits / self.temperature, posterior.object_poses)
        return layer.parent_posterior(self.states(posterior))

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Features `[B, d]`, by name, of images `[B, 1, S, S]` for probes (document 000, section 5.1, appendix D). "t0"
        are the log odds of objects. "t0_A0" are t0 and the mean poses of objects. "children" are the objects' expected
        numbers of children under the exact posterior over parents.
        """
        posterior = self.encode(images)
        t0, A0 = posterior.object_logits, posterior.object_poses
        children = self.routing(posterior)[..., 1:].sum(dim=-2)
        return {"t0": t0, "t0_A0": torch.cat([t0, A0.flatten(1)], dim=1), "children": children}

    def sampled_features(self, found: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        """Sample presences `[B, O]` from the log odds "t0" in `found`. The sample "t0_sampled" is relaxed, in [0, 1].
        "t0_binary" is this sample rounded to 0 or 1. A relaxed sample shows more than whether an object is present: its
        distance from 0 and 1 depends on the log odds. `generator` is on the CPU, so that devices see the same noise.
        """
        t0 = found["t0"]
        noise = logistic_noise(tuple(t0.shape), generator, "cpu").to(t0)
        y = RelaxedPresence(t0, self.temperature, noise).rsample()
        return {"t0_sampled": y.sigmoid(), "t0_binary": (y > 0).to(t0)}

    def draw_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Noise `[*shape, noise_size]`. Standard logistic noise for the presences of parts and of objects comes first.
        With Gaussian poses, standard normal noise for the poses of parts and of objects follows.
        """
        presences = self.params.parts + self.params.objects
        noise = logistic_noise((*shape, presences), generator, generator.device)
        if not self.gaussian:
            return noise
        normal = torch.randn((*shape, presences * POSE_SIZE), generator=generator, device=generator.device)
        return torch.cat([noise, normal], dim=-1)

    def trace_bound(
        self,
        images: Tensor,
        noise: Tensor,
        coupling: Value = 1.0,
        guide: Callable[[], None] | None = None,
        temperature: Value | None = None,
    ) -> BoundTrace:
        """One-sample estimate of each image's evidence lower bound. `noise` is for the default guide, `self.guide`."""
        guide = guide or partial(self.guide, images, noise, coupling, temperature)
        p, q = traced(partial(self.model, images, len(images), coupling, temperature), guide)
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
            error=((images[:, 0] - p["_RETURN"]["value"]) ** 2).sum((-1, -2)),
            children=children,
        )

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch and its metrics.

        "Hierarchy" means all terms of the bound except the pixels' term. For the first `early_epochs`, the hierarchy's
        gradient with respect to parts is multiplied by `early_coupling`. This factor then rises to 1 over
        `ramp_epochs`. While it is small, parts learn from the pixels, and objects specialise. If it is 1 from the
        start, one object soon takes nearly all parts, and the other objects get no gradient. In the `teaching_epochs`
        of `seeding`, `object_errors` replaces the hierarchy in the training loss.

        Args:
            images: `[B, 1, S, S]` in [0, 1].
            noise: `[B, noise_size]` from `draw_noise`.
            epoch: scalar tensor, the number of passes over the data so far; may be fractional.

        Returns:
            the loss, in nats per image (the mean negative bound, except during teaching), and scalar metrics of the
            batch. Evaluation mode adds two metrics, in nats: presence_information, the mutual information of t0 and the
            images (at most the log of the batch size), and presence_kl, the divergence of q(t0) from the prior.
        """
        trace = self.trace_bound(images, noise, self.coupling(epoch), temperature=self.temperature_at(epoch))
        metrics = {name: value.detach().mean() for name, value in trace.metrics(self.c[:, 1:]).items()}
        if not self.training:
            # Parts have no noise, because it would count as information about the image (see `evaluation.presences`).
            P, O, p = self.params.parts, self.params.objects, self.params.object_presence
            logits = self.encode(images).object_logits
            metrics["presence_information"] = joint_information(logits, noise[:, P : P + O])
            metrics["presence_kl"] = presence_kl(logits, math.log(p) - math.log1p(-p)).sum(-1).mean()
        loss = -trace.bound.mean()
        seeding, first = self.params.seeding, self.params.seeding_epoch
        if seeding is not None and self.training:
            teaching = (epoch >= first) & (epoch < first + seeding.teaching_epochs)
            own = arrangements.Arrangements(self.M, self.c[:, 1:].T, self.gamma[:, 1:].T)
            objects = trace.bound - trace.log_pixels + arrangements.object_errors(own, trace)
            loss = loss + teaching.to(loss.dtype) * objects.mean()
        return loss, metrics

    def coupling(self, epoch: Tensor) -> Tensor:
        """The factor on the hierarchy's gradient with respect to the parts at `epoch` of training; see `forward`."""
        ramp = max(self.params.ramp_epochs, 1e-6)
        risen = ((epoch - self.params.early_epochs) / ramp).clamp(0, 1)
        return self.params.early_coupling + (1 - self.params.early_coupling) * risen

    def beginning_images(self, epoch: int) -> int:
        """Maximum number of training images for `begin_epoch`. It is 0 except at `seeding_epoch`."""
        if epoch != self.params.seeding_epoch:
            return 0
        seeding = self.params.seeding
        return seeding.images if seeding else max(arrangements.STARTING_IMAGES, self.params.objects)

    @torch.no_grad()
    def begin_epoch(self, images: Tensor) -> None:
        """At `seeding_epoch`, initialise the objects from the poses of parts in `images [n, 1, S, S]`.

        Without `seeding`, each object's M_ij are from one image, as k-means starts from data points. With fewer images
        than objects, some objects share an image. With `seeding`, M_ij, gamma_ij and c_ij are from a mixture fitted to
        all `images` (see `arrangements`). With `inactive_pose: mean`, the mean poses of parts are set, too.
        """
        params, seeding = self.params, self.params.seeding
        y1, A1 = (torch.cat(each) for each in zip(*map(self.encode_parts, images.split(_BATCH)), strict=True))
        # Parts are weighted by their probability of being present, without temperature and noise.
        t1 = y1.sigmoid()
        if params.inactive_pose == "mean":
            self.mean_pose.copy_(torch.einsum("np,npi->pi", t1 / t1.sum(0), A1))
        if seeding is None:
            found = self.encode(images[torch.arange(params.objects, device=images.device) % len(images)])
            own = found.object_poses.diagonal(dim1=0, dim2=1).mT  # (O, 6): the pose of object i in image i
            frame = poses.invert(poses.to_matrix(own)).unsqueeze(1)
            self.M.copy_(poses.to_offset(poses.compose(frame, poses.to_matrix(found.part_poses))))
        else:
            generator = torch.Generator().manual_seed(0)
            fitted = arrangements.fit_arrangements(t1, A1, params.objects, seeding.iterations, generator)
            self.M.copy_(fitted.M)
            self.gamma[:, 1:] = fitted.gamma.T
            excess = (fitted.c.T - params.pose_sd_floor).clamp_min(arrangements.SMALLEST_EXCESS)
            self.c_excess.copy_(excess.expm1().log())
