"""Settings of matrix capsules, document 004."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.classification.settings import CroppedRun, Mixup
from pipeline.settings import Section

Competition = Literal["all", "position"]


class RoutingLayerParams(Section):
    """Initial values of the parameters of a layer of routed capsules."""

    sd: float = Field(gt=0, le=10, description="initial sd of the numbers in transformation matrices")
    beta_a: float = Field(ge=-1e6, le=1e6, description="nats: minus the fixed cost of an active capsule")
    beta_u: float = Field(ge=-1e6, le=1e6, description="nats: minus the cost of an unexplained element of a vote")


class BayesParams(Section):
    """Priors of variational Bayes, in the symbols of Ribeiro et al. 2020."""

    alpha0: float = Field(gt=0, le=1e6, description="concentration of the Dirichlet prior of mixing proportions")
    kappa0: float = Field(gt=0, le=1e6, description="number of votes that the prior mean 0 of a pose counts as")
    nu0: float = Field(gt=0, le=1e6, description="degrees of freedom of precisions (paper: pose_side^2 + 1)")
    psi0: float = Field(gt=0, le=1e6, description="scale of the prior of precisions; its mean is nu0 psi0")
    precisions: Literal["gamma", "wishart"] = Field(description="gamma: one for each number; wishart: a matrix (paper)")
    shares_of: Literal["layer", "position"] = Field(description="where mixing proportions sum to 1 (authors: position)")


_ACTS_WITH = {
    ("mdl",): ("inverse_temperature", "inverse_temperature_rate", "class_inverse_temperature"),
    ("mdl", "mixing"): ("damping", "damped_first", "variance_floor"),
    ("mdl", "bayes"): ("saving", "beta_a_unit"),
    ("bayes",): ("bayes",),
}
"""For some values of `activation`: the settings that have an effect only with these values. With bayes, `saving` must
be null. `_needs` leaves out `variance_floor` if the unit of coordinates depends on it.
"""


class MatrixCapsulesModelParams(Section):
    """Matrix capsules with EM routing, document 004."""

    views: int = Field(ge=1, le=16, description="number of channels of an image: 2 for a stereo pair")
    channels: int = Field(ge=1, le=4096, description="number A of feature maps of the convolution")
    kernel: int = Field(ge=1, le=31, description="pixels: side of the convolution's kernels")
    stride: int = Field(ge=1, le=16, description="pixels: stride of the convolution")
    primary_types: int = Field(ge=1, le=1024, description="number B of primary capsules at each position")
    types: list[Annotated[int, Field(ge=1, le=1024)]] = Field(description="capsules at a position, by layer (C, D)")
    capsule_kernel: int = Field(ge=1, le=31, description="positions: side K of receptive fields")
    capsule_strides: list[Annotated[int, Field(ge=1, le=16)]] = Field(description="positions: stride of each layer")
    pose: Literal["matrix", "vector"] = Field(
        description="matrix: a vote is a pose matrix times a matrix; vector: a pose vector times a full matrix"
    )
    pose_side: int = Field(ge=2, le=16, description="side of a pose matrix; a pose vector has pose_side^2 numbers")
    coordinate_addition: bool = Field(description="whether a child's position is added to its votes for classes")
    coordinate_scale: float = Field(gt=0, le=100, description="offset per step of position, in coordinate_unit")
    coordinate_unit: Literal["absolute", "floor_sd"] = Field(
        description="absolute: unit of poses; floor_sd: root of variance_floor (authors' code, with a scale of 1.8)"
    )
    classes: int = Field(ge=2, le=1000, description="number of class capsules")

    iterations: int = Field(ge=1, le=100, description="number of iterations of EM routing")
    early_iterations: int = Field(ge=1, le=100, description="iterations in the first early_epochs epochs")
    early_epochs: float = Field(ge=0, le=10_000, description="number of epochs with early_iterations")
    activation: Literal["mdl", "mixing", "bayes"] = Field(
        description="mdl: from the description length that a capsule saves (equation 2); mixing: mixing proportion in "
        "the layer (section 5); bayes: from variational Bayes (Ribeiro et al. 2020)"
    )
    bayes: BayesParams
    batch_norm: bool = Field(description="whether feature maps, poses and activations are normalised (Ribeiro et al.)")
    competition: Competition = Field(description="a child's shares sum to 1 over all parents, or at each position")
    first_shares: Competition = Field(description="instead of `competition: all` in iteration 1 (authors: position)")
    inverse_temperature: float = Field(gt=0, le=1e6, description="limit of lambda for many iterations")
    inverse_temperature_rate: float = Field(ge=0, lt=1, description="iteration i >= 0: lambda = limit (1 - rate^(i+1))")
    class_inverse_temperature: float = Field(gt=0, le=100, description="factor on lambda in the class layer")
    damping: float = Field(ge=0, lt=1, description="weight of the previous pose in the new pose of a capsule")
    damped_first: bool = Field(description="whether iteration 1 is damped, with 0 as previous pose (authors' code)")
    variance_floor: float = Field(
        gt=0, le=1, description="added to variances of votes; with bayes, it only sets the unit floor_sd"
    )
    saving: float | None = Field(
        gt=0, le=1e4, description="nats: mean cost that a vote saves under the initial betas; null: betas as given"
    )
    beta_a_unit: float = Field(gt=0, le=1e6, description="nats: unit of learnt beta_a; 2,500 equals the authors' 5,000")
    convolutional: RoutingLayerParams
    last: RoutingLayerParams
    primary_pose_sd: float = Field(gt=0, le=10, description="initial sd of the weights of primary poses")
    primary_activation_sd: float = Field(gt=0, le=10, description="initial sd of the weights of primary activations")
    primary_bias: float = Field(ge=-100, le=100, description="initial bias of the logits of primary activations")

    loss: Literal["spread", "margin", "cross-entropy", "softmax"] = Field(
        description="loss of activations a; cross-entropy: of a / sum(a); softmax: of softmax(a) (Ribeiro et al.)"
    )
    first_margin: float = Field(ge=0, le=1, description="margin of the spread loss at the start of training")
    last_margin: float = Field(ge=0, le=1, description="margin of the spread loss at the end, and in validation")
    margin_epochs: float = Field(gt=0, le=10_000, description="margin rises as logistic(epoch / margin_epochs - 4)")
    weight_decay: float = Field(ge=0, le=1, description="weight, in the loss, of half the sum of squared weights")
    mixup: Mixup

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.capsule_strides) != len(self.types):
            raise ValueError("capsule_strides must have one stride for each layer of types")
        if self.first_margin > self.last_margin:
            raise ValueError(f"first_margin must not exceed last_margin ({self.last_margin})")
        if self.batch_norm and self.activation != "bayes":
            raise ValueError("batch_norm needs activation: bayes")
        if self.activation == "bayes" and self.saving is not None:
            raise ValueError(
                "with activation: bayes, saving must be null, because it sets the betas of activation: mdl"
            )
        least = self.pose_side**2 - 1
        if self.bayes.precisions == "wishart" and self.bayes.nu0 <= least:
            raise ValueError(f"with Wishart precisions, bayes.nu0 must exceed pose_side^2 - 1 ({least})")
        return self


class MatrixCapsulesRun(CroppedRun):
    """A run of matrix capsules."""

    variant: Literal["matrix_capsules"]
    model: MatrixCapsulesModelParams

    def _needs(self) -> dict[str, tuple[bool, tuple[str, ...]]]:
        model, unit = self.model, self.model.coordinate_addition and self.model.coordinate_unit == "floor_sd"
        return {
            "competition: all": (model.competition == "all", ("first_shares",)),
            "coordinate_addition": (model.coordinate_addition, ("coordinate_scale", "coordinate_unit")),
            "early_epochs above 0": (model.early_epochs > 0, ("early_iterations",)),
            "loss: spread": (model.loss == "spread", ("first_margin", "last_margin", "margin_epochs")),
        } | {
            f"activation: {' or '.join(activations)}": (
                model.activation in activations,
                tuple(name for name in names if not (name == "variance_floor" and unit)),
            )
            for activations, names in _ACTS_WITH.items()
        }

    def _schedule_for(self, epochs: int) -> dict[str, Any]:
        share = epochs / self.training.epochs
        return {name: share * getattr(self.model, name) for name in ("margin_epochs", "early_epochs")}
