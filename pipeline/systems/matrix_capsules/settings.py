"""Settings of matrix capsules, document 004."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.classification.settings import CroppedRun, Mixup
from pipeline.settings import Section

Competition = Literal["all", "position"]


class RoutingLayerParams(Section):
    """Initial values of the parameters of a layer of routed capsules."""

    sd: float = Field(gt=0, le=10, description="initial standard deviation of the transformation matrices")
    beta_a: float = Field(ge=-1e6, le=1e6, description="nats: minus the fixed cost of an active capsule")
    beta_u: float = Field(ge=-1e6, le=1e6, description="nats per element of a vote: minus its cost if unexplained")


class BayesParams(Section):
    """Priors of variational Bayes, in the symbols of Ribeiro et al. 2020."""

    alpha0: float = Field(gt=0, le=1e6, description="concentration of the Dirichlet prior of mixing proportions")
    kappa0: float = Field(gt=0, le=1e6, description="weight, in votes, of the prior mean of a pose, which is 0")
    nu0: float = Field(gt=0, le=1e6, description="degrees of freedom of precisions: pose_side^2 + 1 in the paper")
    psi0: float = Field(gt=0, le=1e6, description="scale of precisions, whose prior mean is nu0 psi0")
    precisions: Literal["gamma", "wishart"] = Field(description="gamma: one per number; wishart: a matrix (paper)")
    shares_of: Literal["layer", "position"] = Field(
        description="mixing proportions sum to 1 over a layer, or at each position (authors: position)"
    )


_ACTS_WITH = {
    ("mdl",): ("inverse_temperature", "inverse_temperature_rate", "class_inverse_temperature"),
    ("mdl", "mixing"): ("damping", "damped_first", "variance_floor"),
    ("mdl", "bayes"): ("saving", "beta_a_unit"),
    ("bayes",): ("bayes",),
}
"""Names of the model's settings that have an effect only with some values of `activation`, by these values."""


class MatrixCapsulesModelParams(Section):
    """Matrix capsules with EM routing, document 004."""

    views: int = Field(ge=1, le=16, description="channels of an image: 2 for a stereo pair")
    channels: int = Field(ge=1, le=4096, description="feature maps of the convolution, A")
    kernel: int = Field(ge=1, le=31, description="pixels: side of the convolution's kernels")
    stride: int = Field(ge=1, le=16, description="pixels: stride of the convolution")
    primary_types: int = Field(ge=1, le=1024, description="primary capsules at each position, B")
    types: list[Annotated[int, Field(ge=1, le=1024)]] = Field(description="capsules at a position, by layer: C, D")
    capsule_kernel: int = Field(ge=1, le=31, description="positions: side of receptive fields, K")
    capsule_strides: list[Annotated[int, Field(ge=1, le=16)]] = Field(description="positions: stride of each layer")
    pose: Literal["matrix", "vector"] = Field(description="a vote: matrix times matrix, or vector times full matrix")
    pose_side: int = Field(ge=2, le=16, description="rows, and columns, of a pose")
    coordinate_addition: bool = Field(description="positions are added to votes for class capsules")
    coordinate_scale: float = Field(gt=0, le=100, description="offset per position, in coordinate_unit")
    coordinate_unit: Literal["absolute", "floor_sd"] = Field(
        description="absolute: unit of poses; floor_sd: root of variance_floor (authors, with coordinate_scale 1.8)"
    )
    classes: int = Field(ge=2, le=1000, description="class capsules")

    iterations: int = Field(ge=1, le=100, description="iterations of EM routing")
    early_iterations: int = Field(ge=1, le=100, description="iterations in the first early_epochs of training only")
    early_epochs: float = Field(ge=0, le=10_000, description="epochs with early_iterations; 0: none")
    activation: Literal["mdl", "mixing", "bayes"] = Field(
        description="mdl: by the description length saved (equation 2); mixing: share of the layer (section 5); bayes"
    )
    bayes: BayesParams
    batch_norm: bool = Field(description="normalise feature maps, poses and activations, as in Ribeiro et al. 2020")
    competition: Competition = Field(description="a child's shares sum to 1 over all parents, or at each position")
    first_shares: Competition = Field(description="competition in iteration 1, if it is all later (authors: position)")
    inverse_temperature: float = Field(gt=0, le=1e6, description="lambda after infinitely many iterations")
    inverse_temperature_rate: float = Field(ge=0, lt=1, description="iteration i, from 0: lambda (1 - rate^(i + 1))")
    class_inverse_temperature: float = Field(gt=0, le=100, description="factor on lambda in the class layer")
    damping: float = Field(ge=0, lt=1, description="weight of the previous mean in the new mean of a pose")
    damped_first: bool = Field(description="damp the first iteration, too, with 0 as previous mean (authors' code)")
    variance_floor: float = Field(gt=0, le=1, description="added to votes' variances; bayes uses it for floor_sd only")
    saving: float | None = Field(gt=0, le=1e4, description="nats: betas start so that a vote saves this; null: as set")
    beta_a_unit: float = Field(gt=0, le=1e6, description="nats: unit of the learnt beta_a (authors' 5,000: 2,500 here)")
    convolutional: RoutingLayerParams
    last: RoutingLayerParams
    primary_pose_sd: float = Field(gt=0, le=10, description="initial sd of the weights of primary poses")
    primary_activation_sd: float = Field(gt=0, le=10, description="initial sd of the weights of primary activations")
    primary_bias: float = Field(ge=-100, le=100, description="initial bias of the logits of primary activations")

    loss: Literal["spread", "margin", "cross-entropy", "softmax"] = Field(
        description="of activations a; cross-entropy: of a / sum a; softmax: of a's softmax (Ribeiro et al.)"
    )
    first_margin: float = Field(ge=0, le=1, description="margin of the spread loss at the start of training")
    last_margin: float = Field(ge=0, le=1, description="margin at the end of training, and in validation")
    margin_epochs: float = Field(gt=0, le=10_000, description="margin rises as logistic(epoch / margin_epochs - 4)")
    weight_decay: float = Field(ge=0, le=1, description="factor on half the squared weights in the loss")
    mixup: Mixup

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.capsule_strides) != len(self.types):
            raise ValueError("capsule_strides must have one stride for each layer of types")
        if self.first_margin > self.last_margin:
            raise ValueError(f"first_margin must not exceed last_margin ({self.last_margin})")
        if self.batch_norm and self.activation != "bayes":
            raise ValueError("batch_norm needs activation: bayes")
        if self.batch_norm and self.saving is not None:
            raise ValueError("with batch_norm, saving must be null: batch norm removes what beta_a adds")
        least = self.pose_side**2 - 1
        if self.bayes.precisions == "wishart" and self.bayes.nu0 <= least:
            raise ValueError(f"with Wishart precisions, bayes.nu0 must exceed pose_side^2 - 1 ({least})")
        return self


class MatrixCapsulesRun(CroppedRun):
    """A run of matrix capsules."""

    variant: Literal["matrix_capsules"]
    model: MatrixCapsulesModelParams

    def without_effect(self) -> dict[str, str]:
        """The settings that the model ignores, as in `RunSettings`."""
        model, unit = self.model, self.model.coordinate_addition and self.model.coordinate_unit == "floor_sd"
        first_shares = {"first_shares": "competition: all"} if model.competition == "position" else {}
        return first_shares | {
            name: f"activation: {' or '.join(activations)}"
            for activations, names in _ACTS_WITH.items()
            for name in names
            if model.activation not in activations and not (name == "variance_floor" and unit)
        }

    def _schedule_for(self, epochs: int) -> dict[str, Any]:
        share = epochs / self.training.epochs
        return {name: share * getattr(self.model, name) for name in ("margin_epochs", "early_epochs")}
