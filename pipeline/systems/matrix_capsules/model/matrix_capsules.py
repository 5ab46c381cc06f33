"""Matrix capsules with EM routing (document 004): a classifier that finds objects where votes for their poses agree.

    image -> convolution, ReLU -> primary capsules -> convolutional capsules, twice -> class capsules

A capsule has an activation, and a pose of P numbers: a matrix or a vector. Its pose times a learnt transformation is
its vote for the pose of a capsule above (section 3). Capsules above fit Gaussians to votes (`em_routing`). Votes for
class capsules use the same transformations at all positions, and the child's position is added to a vote (section 4,
"coordinate addition"). A class capsule's activation says whether its class is present.

Ribeiro et al. (2020) use variational Bayes in place of EM in the same network. They add batch norm to the feature maps
and, in every layer of capsules, to poses and to the logits of activations.

In training, batch norm uses the mean and variance of the batch. For evaluation, both are measured on training images
after each epoch, with the weights that are evaluated (the current weights or their average). Running averages over the
batches would come from earlier weights. The measured mean and variance are parameters without a gradient: training
steps do not change them, and they are saved and loaded with the other parameters.

Shapes besides those of `em_routing`: images `[B, C, S, S]` in [0, 1], capsules `[B, H H, types, P]` at H x H positions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.classification.classifier import Classifier
from pipeline.errors import UserError
from pipeline.layers.class_losses import cross_entropy, margin_loss, spread_loss
from pipeline.layers.images import ChannelsLastConvolution, standardise
from pipeline.systems.matrix_capsules.model import compiled_routing
from pipeline.systems.matrix_capsules.model.em_routing import Routing, Step, cast_votes, history, images_at_once, route
from pipeline.systems.matrix_capsules.model.receptive_fields import ReceptiveFields
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams

_BALANCED_ON = 64
"""Number of images from whose votes beta_a and beta_u are set before training (`RoutedCapsules.balance`)."""
_MEASURED_ON = 2048
"""Number of images on which the mean and variance of batch norm are measured. With batches of 128 images, torch's
running averages would depend on a similar number of images."""


class BatchNorm(nn.Module):
    """Batch normalisation (Ioffe and Szegedy 2015): the values of a type get mean 0 and variance 1 over all other axes.

    Args:
        types: number of channels, or of capsule types.
        axis: the axis of types in an input.
        learnt: whether the normalised values are scaled and shifted by trained parameters.
    """

    def __init__(self, types: int, axis: int, learnt: bool) -> None:
        super().__init__()
        self.axis = axis
        self.mean = nn.Parameter(torch.zeros(types), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(types), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(types)) if learnt else None
        self.shift = nn.Parameter(torch.zeros(types)) if learnt else None
        self.measured: list[Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`. The shape does not change.

        Raises:
            ValueError: in training, a type has only one value.
        """
        x = x.movedim(self.axis, 1)
        if self.training and self.measured is not None:
            self.measured.append(torch.stack(torch.var_mean(x, [0, *range(2, x.dim())])))
        mean, variance = (None, None) if self.training else (self.mean, self.variance)
        found = F.batch_norm(x, mean, variance, self.scale, self.shift, training=self.training)
        return found.movedim(1, self.axis)


@torch.no_grad()
def measure_statistics(model: nn.Module, run: Callable[[Tensor], object], batches: Iterable[Tensor]) -> None:
    """Set mean and variance of all batch norms in `model` to averages over `batches`. `run` applies it to a batch."""
    norms, training = [module for module in model.modules() if isinstance(module, BatchNorm)], model.training
    model.train()
    for norm in norms:
        norm.measured = []
    for batch in batches:
        run(batch)
    for norm in norms:
        variance, mean = torch.stack(norm.measured or []).mean(0)
        norm.mean.copy_(mean)
        norm.variance.copy_(variance)
        norm.measured = None
    model.train(training)


class PrimaryCapsules(nn.Module):
    """Capsules whose poses and activation logits are linear functions of the feature maps at their position.

    With batch norm, the linear functions have no biases. Poses and logits are then normalised for each type.
    """

    def __init__(self, params: MatrixCapsulesModelParams) -> None:
        super().__init__()
        types, norm = params.primary_types, params.batch_norm
        self.pose_shape = (types, params.pose_side**2)
        self.poses = nn.Linear(params.channels, types * params.pose_side**2, bias=not norm)
        self.activations = nn.Linear(params.channels, types, bias=not norm)
        starts = ((params.primary_pose_sd, 0.0), (params.primary_activation_sd, params.primary_bias))
        for linear, (sd, bias) in zip((self.poses, self.activations), starts, strict=True):
            nn.init.trunc_normal_(linear.weight, std=sd, a=-2 * sd, b=2 * sd)
            if not norm:
                nn.init.constant_(linear.bias, bias)
        self.norm_poses = BatchNorm(types, 2, learnt=True) if norm else nn.Identity()
        self.norm_activations = BatchNorm(types, 2, learnt=True) if norm else nn.Identity()

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map features `[B, channels, H, H]` to poses `[B, H H, types, P]` and activations `[B, H H, types]`."""
        flat = features.permute(0, 2, 3, 1).flatten(1, 2)
        poses = self.norm_poses(self.poses(flat).unflatten(-1, self.pose_shape))
        return poses, self.norm_activations(self.activations(flat)).sigmoid()


class RoutedCapsules(nn.Module):
    """Capsules that fit Gaussians to the votes of the capsules below.

    Args:
        fields: receptive fields in the layer below.
        types_below, types: number of capsules at each position, in the layer below and in this layer.
        params: settings of the network.
        last: whether these are class capsules. If so, all positions of the receptive field share transformations, and
            votes depend on the position only through coordinate addition.

    Attributes:
        iterations: current number of routing iterations. It may change in training.
    """

    offsets: Tensor | None

    def __init__(
        self,
        fields: ReceptiveFields,
        types_below: int,
        types: int,
        params: MatrixCapsulesModelParams,
        last: bool = False,
    ) -> None:
        super().__init__()
        self.fields, self.params, self.last, self.iterations = fields, params, last, params.iterations
        places, layer = (1, params.last) if last else (fields.children.shape[1], params.convolutional)
        side = params.pose_side
        # A transformation multiplies each row of a matrix pose, or a vector pose as a whole.
        inner = side if params.pose == "matrix" else side**2
        start = torch.empty(places, types_below, inner, types, inner)
        self.transformations = nn.Parameter(nn.init.trunc_normal_(start, std=layer.sd, a=-2 * layer.sd, b=2 * layer.sd))
        self.beta_a = nn.Parameter(torch.full((types,), layer.beta_a / params.beta_a_unit))
        self.beta_u = nn.Parameter(torch.full((types,), layer.beta_u))
        offsets = _coordinates(fields, params) if last and params.coordinate_addition else None
        self.register_buffer("offsets", offsets, persistent=False)
        self.beta_a.requires_grad_(not params.batch_norm)  # beta_a would have no effect: batch norm removes it
        self.norm_poses = BatchNorm(types, 2, learnt=False) if params.batch_norm else nn.Identity()
        self.norm_activations = BatchNorm(types, 2, learnt=False) if params.batch_norm else nn.Identity()

    def betas(self) -> tuple[Tensor, Tensor]:
        """beta_a and beta_u `[types]` in nats. The parameter `beta_a` is in units of `beta_a_unit`."""
        return self.beta_a * self.params.beta_a_unit, self.beta_u

    def routing(self) -> Routing:
        """The settings of the layer's routing."""
        return Routing(self.fields.to(self.beta_a.device), self.params, self.iterations, self.last, self.offsets)

    def full_transformations(self) -> Tensor:
        """Transformations of whole poses at every position of the receptive field, `[k, c, P, D, P]`."""
        return of_whole_poses(self.transformations, self.fields.children.shape[1], self.params.pose_side**2)

    def forward(self, capsules: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Parents' poses `[B, p, D, P]` and activations `[B, p, D]`, from children's `[B, X, c, P]` and `[B, X, c]`."""
        routing = self.routing()
        if compiled_routing.supported(capsules[0], self.transformations, routing):
            poses, activations = compiled_routing.route(*capsules, self.transformations, *self.betas(), routing)
        else:
            poses, activations = route(*capsules, self.full_transformations(), *self.betas(), routing)
        return self.norm_poses(poses), self.handed_on(activations)

    def handed_on(self, activations: Tensor) -> Tensor:
        """The activations that the layer returns, given those after an M-step (logits if there is batch norm)."""
        normalised = self.norm_activations(activations)
        return normalised.sigmoid() if self.params.batch_norm else normalised

    def balance(self, capsules: tuple[Tensor, Tensor], saving: float) -> None:
        """Set beta_u and beta_a of each type from votes of `capsules`, the layer below. beta_u is chosen so that a vote
        of weight 1 lowers a capsule's cost by `saving` nats on average. beta_a is the mean cost, so that a capsule with
        this cost has activation 1/2. Costs are those of `activation: mdl`. With these betas, activations grow with the
        assigned mass, and not only with the agreement of votes, which means little before training.
        """
        count = images_at_once(capsules[0], self.full_transformations(), self.routing())
        log_sd, mass, product = (torch.zeros_like(self.beta_u) for _ in range(3))
        for few in zip(*(each.split(count) for each in capsules), strict=True):
            last = self.steps(few)[-1]
            each = (-0.5 * (-2 * last.parents.quadratic).log()).sum(-1)  # (B, p, D)
            for total, values in ((log_sd, each), (mass, last.moments.mass), (product, last.moments.mass * each)):
                total += values.mean(1).sum(0) / len(capsules[0])
        size = capsules[0].shape[-1]
        self.beta_u.copy_((-saving - log_sd) / size)
        cost = mass * size * self.beta_u + product  # the mean cost
        self.beta_a.copy_(cost / self.params.beta_a_unit)

    def votes(self, capsules: tuple[Tensor, Tensor]) -> Tensor:
        """Votes for each parent by its N children, sorted by the child's position, `[B, p, D, N, P]`."""
        return cast_votes(capsules[0], self.full_transformations(), self.routing())

    def steps(self, capsules: tuple[Tensor, Tensor], iterations: int | None = None) -> list[Step]:
        """The steps of routing with `iterations` iterations, by default the layer's current number."""
        routing = replace(self.routing(), iterations=iterations or self.iterations)
        return history(*capsules, self.full_transformations(), *self.betas(), routing)


def of_whole_poses(transformations: Tensor, k: int, size: int) -> Tensor:
    """Transformations of whole poses (P = `size` numbers), `[k, c, P, D, P]`, from `[1 or k, c, I, D, I]` for one row
    (I numbers). A vector pose has one row. Row r of a vote is row r of the pose times the transformation for a row.
    """
    rows = torch.eye(size // transformations.shape[-1]).to(transformations)
    whole = torch.einsum("rs,kcidj->kcridsj", rows, transformations).flatten(5, 6).flatten(2, 3)
    return whole.expand(k, *whole.shape[1:])


def _coordinates(fields: ReceptiveFields, params: MatrixCapsulesModelParams) -> Tensor:
    """Offsets of votes, `[k, P]`: a child's row and column, counted from the middle of the receptive field and scaled
    by settings. They are the first two elements of a matrix's last column, or of a vector. Other elements are 0.
    """
    k, side = fields.children.shape[1], params.pose_side
    height = round(k**0.5)
    unit = params.variance_floor**0.5 if params.coordinate_unit == "floor_sd" else 1.0
    along = (torch.arange(height) - (height - 1) / 2) * (params.coordinate_scale * unit)
    offsets = torch.zeros(k, side**2)
    places = (side - 1, 2 * side - 1) if params.pose == "matrix" else (0, 1)
    offsets[:, places[0]], offsets[:, places[1]] = along.repeat_interleave(height), along.repeat(height)
    return offsets


class MatrixCapsules(Classifier):
    """The network of matrix capsules, a classifier.

    Args:
        params: settings of the network.
        image_size: side S of the square images, in pixels.

    Raises:
        UserError: a kernel is larger than the image or the layer below, over which it moves.
    """

    scores_are_activations = True

    def __init__(self, params: MatrixCapsulesModelParams, image_size: int) -> None:
        super().__init__(mixup=params.mixup)
        self.params, self.image_size = params, image_size
        if image_size < params.kernel:
            raise UserError(f"matrix capsules: kernels of {params.kernel} pixels exceed images of {image_size} pixels")
        norm = params.batch_norm
        self.first = ChannelsLastConvolution(params.views, params.channels, params.kernel, params.stride, bias=not norm)
        self.norm_first = BatchNorm(params.channels, 1, learnt=True) if norm else nn.Identity()
        self.statistics_images = _MEASURED_ON if norm else 0
        height = (image_size - params.kernel) // params.stride + 1
        self.primary = PrimaryCapsules(params)
        layers, types = [], params.primary_types
        for above, stride in zip(params.types, params.capsule_strides, strict=True):
            fields = ReceptiveFields(height, params.capsule_kernel, stride)
            layers.append(RoutedCapsules(fields, types, above, params))
            height, types = fields.side, above
        layers.append(RoutedCapsules(ReceptiveFields(height, height, 1), types, params.classes, params, last=True))
        self.routed = cast("Sequence[RoutedCapsules]", nn.ModuleList(layers))

    def maps(self, images: Tensor) -> Tensor:
        """The feature maps `[B, channels, H, H]`, which are the input of the primary capsules.

        Raises:
            ValueError: the images are not `image_size` pixels wide. The receptive fields are for this size only.
        """
        if images.shape[-1] != self.image_size:
            raise ValueError(f"images are {images.shape[-1]} pixels wide, the network is for {self.image_size}")
        return self.norm_first(self.first(standardise(images))).relu()

    def capsules(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Poses and activations of every layer of capsules, beginning with the primary capsules."""
        found = [self.primary(self.maps(images))]
        for layer in self.routed:
            found.append(layer(found[-1]))
        return found

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Classifier.forward`. In training, routing uses `early_iterations` in the first `early_epochs` epochs."""
        early = self.training and self.params.early_epochs > 0 and float(epoch) < self.params.early_epochs
        self.route_for(self.params.early_iterations if early else self.params.iterations)
        return super().forward(images, noise, epoch, labels)

    def route_for(self, iterations: int) -> None:
        """Set the number of routing iterations of every layer."""
        for layer in self.routed:
            layer.iterations = iterations

    def beginning_images(self, epoch: int) -> int:
        """Number of images for `balance` before the first epoch. 0 before later epochs, or if `saving` is None."""
        return _BALANCED_ON if epoch == 0 and self.params.saving is not None else 0

    @torch.no_grad()
    def begin_epoch(self, images: Tensor) -> None:
        """Before the first epoch, set beta_a and beta_u of one layer after another by `balance`."""
        assert self.params.saving is not None, "otherwise beginning_images is 0"
        self.route_for(self.params.early_iterations if self.params.early_epochs else self.params.iterations)
        capsules = self.primary(self.maps(images))
        for layer in self.routed:
            layer.balance(capsules, self.params.saving)
            capsules = layer(capsules)

    def end_epoch(self, images: Tensor, batch: int) -> None:
        """Measure batch norm's mean and variance on `images`. A smaller last batch is left out if there are others."""
        self.route_for(self.params.iterations)
        whole = images[: max(len(images) // batch, 1) * batch]
        measure_statistics(self, self.capsules, whole.split(batch))

    def logits(self, scores: Tensor) -> Tensor:
        """Log odds of the activations."""
        return scores.logit(eps=1e-6)

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Activations of the n class capsules, `[B, n]`."""
        return self.capsules(images)[-1][1][:, 0]

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        """The loss of each image, `[B]`: spread loss (the margin grows), margin loss, or one of two cross-entropies."""
        params = self.params
        match params.loss:
            case "spread":
                # Evaluation uses the last margin, so that losses of different epochs can be compared.
                grown = torch.sigmoid((epoch / params.margin_epochs - 4).clamp(max=10)) if self.training else 1.0
                margin = params.first_margin + (params.last_margin - params.first_margin) * grown
                return spread_loss(scores, labels, margin)
            case "margin":
                return margin_loss(scores, labels, 0.9, 0.1, 0.5)
            case "cross-entropy":
                return cross_entropy(scores, labels)
            case "softmax":
                return F.cross_entropy(scores, labels, reduction="none")

    def penalty(self) -> Tensor:
        """Weight decay times half the sum of squared weights, without biases, betas and parameters of batch norm."""
        squares = [parameter.square().sum() for parameter in self.parameters() if parameter.dim() > 1]
        return 0.5 * self.params.weight_decay * torch.stack(squares).sum()
