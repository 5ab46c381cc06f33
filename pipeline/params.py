"""The typed form of `params.yaml`: every knob, its unit and its range.

Unknown keys are refused, nothing is coerced, and every error names the field and what it allows. `params.yaml` holds
all values, with no defaults hidden here, so that `dvc params diff` shows everything that can change a result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import UserError
from pipeline.learning.variation import changed_model, varied_model

MAX_ANGLE = 180.0

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="lower-case letters, digits and hyphens")]
Angle = Annotated[float, Field(ge=0, le=MAX_ANGLE, description="degrees: rotations are uniform in [-angle, +angle]")]


class ParamsError(UserError):
    """A parameter is unknown, missing or out of range. The message names each field and what it allows."""

    exit_code = 2


class Section(BaseModel):
    """A part of `params.yaml`: strict, immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class DatasetParams(Section):
    """One data set: where it comes from and how it is split."""

    source: Literal[
        "digits", "mnist", "fashion-mnist", "cifar10", "smallnorb", "smallnorb48", "smallnorb48-posed", "toys"
    ] = Field(description="entry of the registry of sources")
    train: int = Field(ge=1, description="training images kept (the first ones of the training part)")
    canvas: int = Field(
        ge=28,
        le=256,
        description="pixels: side of the black canvas the images are centred on; at least that of the images, which "
        "is 28, of CIFAR-10 32, of smallNORB and the toys 48",
    )
    validation: int = Field(ge=1, description="images held out of the official training part for model choices")
    test: int = Field(ge=1, description="test images kept (the first ones of the test part)")
    split_seed: int | None = Field(
        ge=0,
        description="seed of the fixed train/validation/test shuffle; null: none, the last of the published training "
        "images validate",
    )


class AugmentationParams(Section):
    """Warps drawn afresh for every training image in every epoch."""

    rotation: Angle
    shift: float = Field(ge=0, le=14, description="pixels: translation uniform in [-shift, +shift] on each axis")
    whole_pixels: bool = Field(description="shifts by whole numbers of pixels, which leave an image as sharp as it was")

    @model_validator(mode="after")
    def _consistent(self) -> AugmentationParams:
        if self.whole_pixels and (self.shift % 1 or self.rotation):
            raise ValueError("where whole_pixels is true, shift must be a whole number and rotation 0")
        return self


class CropParams(Section):
    """What classifiers see of images: squares cut out of them, with changes of light, drawn afresh in every epoch.

    Validation and tests take the middle, in the light it was taken in.
    """

    crop: int = Field(ge=4, le=256, description="pixels: side of the square cut out at a random place")
    brightness: float = Field(ge=0, le=1, description="added to images in [0, 1], uniform in [-brightness, brightness]")
    contrast: float = Field(
        ge=0, le=1, description="distances from an image's mean times a factor uniform in [1 - contrast, 1 + contrast]"
    )

    @property
    def rotation(self) -> float:
        """Degrees: crops turn nothing."""
        return 0.0

    @property
    def shift(self) -> float:
        """Pixels: crops leave no canvas to shift images on."""
        return 0.0


class TrainingParams(Section):
    """The gradient loop."""

    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    batch_size: int = Field(ge=1, le=65_536, description="images per step")
    optimiser: Literal["adam", "rmsprop"] = Field(
        description="adam, or rmsprop as TensorFlow 1 has it, with momentum: what SCAE was published with"
    )
    learning_rate: float = Field(gt=0, le=1, description="the optimiser's step size")
    final_learning_rate: float = Field(gt=0, le=1, description="step size at the last epoch; cosine decay in between")
    gradient_clip: float = Field(gt=0, description="largest gradient norm of a step, per replica")
    patience: int = Field(ge=1, description="epochs without a better validation loss before a replica stops")


class GenerativeModelParams(Section):
    """Probabilistic capsules, document 000, section 2 and appendix B."""

    objects: int = Field(ge=1, le=256, description="capsules of the top layer (k = 0)")
    parts: int = Field(ge=1, le=256, description="capsules of the bottom layer (k = 1), one template each")
    template_size: int = Field(ge=2, le=64, description="template height and width, in template pixels")
    template_scale: float = Field(gt=0, le=2, description="side of a part's template at its initial pose / image side")
    temperature: float = Field(gt=0, le=10, description="of the relaxed presences, at the start of training")
    final_temperature: float = Field(
        gt=0, le=10, description="temperature after temperature_epochs and whenever the model is evaluated"
    )
    temperature_epochs: int = Field(
        ge=0, description="epochs over which the temperature goes from the first to the last, by equal factors"
    )
    pixel_sd: float = Field(gt=0, le=1, description="sd of a pixel around the rendering, images in [0, 1]")
    pose_sd_floor: float = Field(gt=0, le=10, description="least sd c_ij of a part's pose around its parent's vote")
    pose_sd_start: float = Field(gt=0, le=10, description="sd c_ij at the start; above pose_sd_floor")
    inactive_pose_sd: float = Field(gt=0, le=100, description="sd lambda_off of an absent part's pose")
    inactive_pose: Literal["initial", "zero"] = Field(
        description="centre of an absent part's pose: the part's initial pose, or zero as printed in equation 6"
    )
    slots: Literal["own", "any"] = Field(
        description="place of a part in its parent: its own, as published, or any of the parts' places, summed out"
    )
    affinities: Literal["learned", "uniform"] = Field(description="rho_ij of the objects: learned from 1, or kept at 1")
    dummy_affinity: float = Field(gt=0, le=10, description="rho_0j of the always-on dummy parent; others start at 1")
    dummy_pose_sd: float = Field(gt=0, le=100, description="sd c_0j of the pose of a part without a parent")
    object_presence: float = Field(gt=0, lt=1, description="prior probability p that an object is present")
    pose_posterior: Literal["delta", "gaussian"] = Field(
        description="the guide's poses: points, or Gaussians with sds from the encoder (section 2.3)"
    )
    pose_posterior_sd_start: float = Field(gt=0, le=10, description="sd of each number of a Gaussian pose at the start")

    channels: int = Field(ge=1, le=1024, description="channels of each of the encoder's four convolutions")
    part_features: int = Field(ge=1, le=1024, description="features pooled by attention for each part")
    hidden: int = Field(ge=4, le=4096, description="width of the set transformer and of the per-capsule MLPs")
    heads: int = Field(ge=1, le=64, description="attention heads; divides hidden")
    inducing: int = Field(ge=1, le=1024, description="inducing points of each induced set attention block")
    blocks: int = Field(ge=1, le=32, description="induced set attention blocks")
    code: int = Field(ge=1, le=1024, description="features per object after the set transformer")

    seeding_epoch: int = Field(ge=0, description="epochs before M_ij is set from part poses of training images")
    early_coupling: float = Field(
        ge=0, le=1, description="factor on the hierarchy's gradient into the parts before it rises to 1"
    )
    early_epochs: int = Field(ge=0, description="epochs at early_coupling, while objects specialise")
    ramp_epochs: int = Field(ge=0, description="epochs over which the factor then rises to 1")

    @model_validator(mode="after")
    def _consistent(self) -> GenerativeModelParams:
        if self.pose_sd_start <= self.pose_sd_floor:
            raise ValueError(f"pose_sd_start must exceed pose_sd_floor ({self.pose_sd_floor})")
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden ({self.hidden})")
        return self


class VAEModelParams(Section):
    """The variational autoencoder that document 000, section 5 compares with."""

    latent: int = Field(ge=1, le=4096, description="dimensions of the latent code")
    hidden: int = Field(ge=1, le=65_536, description="hidden units of the encoder and of the decoder")
    pixel_sd: float = Field(gt=0, le=1, description="sd of a pixel around the reconstruction, images in [0, 1]")


class SCAEModelParams(Section):
    """The stacked capsule autoencoder (Kosiorek et al. 2019) that document 000, Figure 4 compares with."""

    objects: int = Field(ge=1, le=256, description="object capsules")
    parts: int = Field(ge=1, le=256, description="part capsules, one template each")
    template_size: int = Field(ge=2, le=64, description="template height and width, in template pixels")
    part_features: int = Field(ge=1, le=1024, description="features of a part: its colour, and what objects see of it")
    channels: int = Field(ge=1, le=1024, description="channels of each of the encoder's four convolutions")
    hidden: int = Field(ge=1, le=4096, description="width of the set transformer's blocks")
    blocks: int = Field(ge=1, le=32, description="self-attention blocks")
    attention: Literal["published", "presence"] = Field(
        description="how presences mask attention: (1 - d) 1e32 off the scores as published, or log d added to them"
    )
    code: int = Field(ge=1, le=4096, description="features per object after the set transformer")
    object_features: int = Field(ge=1, le=1024, description="features per object that all else is predicted from")
    presence_noise: float = Field(ge=0, le=10, description="half width of the uniform noise on presence logits")
    deformation: float = Field(ge=0, description="weight of half the squared deformations")
    posterior_within: float = Field(ge=0, description="weight of the entropy of the objects' shares within an image")
    posterior_between: float = Field(ge=0, description="weight of the same over the batch, subtracted")
    prior_within: float = Field(ge=0, description="weight of the squared distance of the presences' sum to prior_sum")
    prior_between: float = Field(ge=0, description="weight of the same for each object's sum over the batch")
    prior_sum: float = Field(gt=0, description="objects present in an image, aimed at")
    classes: int = Field(ge=1, description="an object is to be present in one of so many images")


class CapsNetModelParams(Section):
    """CapsNet (Sabour et al. 2017), the network of document 001, section 3.1 and appendix A."""

    channels: int = Field(ge=1, le=4096, description="feature maps of the first convolution")
    kernel: int = Field(ge=1, le=31, description="pixels: side of both convolutions' kernels")
    strides: list[Annotated[int, Field(ge=1, le=16)]] = Field(
        min_length=2, max_length=2, description="pixels: steps of the two convolutions"
    )
    types: int = Field(ge=1, le=1024, description="primary capsules at each position")
    primary_size: int = Field(ge=1, le=256, description="numbers of a primary capsule")
    middle: int = Field(ge=0, le=1024, description="capsules of a layer between primary and class capsules; 0: none")
    middle_size: int = Field(ge=1, le=256, description="numbers of a capsule of that layer")
    class_size: int = Field(ge=1, le=256, description="numbers of a class capsule")
    classes: int = Field(ge=2, le=1000, description="class capsules")
    iterations: int = Field(ge=0, le=100, description="of routing by agreement; 0: sums without weights")
    counting: Literal["sums", "updates"] = Field(
        description="what an iteration is: a weighted sum (Sabour et al.), or an update of the weights, after which "
        "comes one more sum (the code of document 001)"
    )
    reconstruction: Literal["none", "summed", "mean"] = Field(
        description="squared pixel errors in the loss: none, summed over the pixels (Sabour et al.), or their mean "
        "(the code of document 001)"
    )
    reconstruction_weight: float = Field(ge=0, le=1000, description="factor on them")
    decoder: list[Annotated[int, Field(ge=1, le=65_536)]] = Field(description="hidden units of the decoder's layers")
    present_margin: float = Field(gt=0, lt=1, description="length m+ from which a present class costs nothing")
    absent_margin: float = Field(gt=0, lt=1, description="length m- up to which an absent class costs nothing")
    absent_weight: float = Field(ge=0, le=100, description="factor lambda on the costs of absent classes")

    @model_validator(mode="after")
    def _consistent(self) -> CapsNetModelParams:
        if self.absent_margin >= self.present_margin:
            raise ValueError(f"absent_margin must be below present_margin ({self.present_margin})")
        return self


class CNNModelParams(Section):
    """The convolutional network that document 004 compares with, section 5."""

    views: int = Field(ge=1, le=16, description="channels of an image: 2 for a stereo pair")
    channels: list[Annotated[int, Field(ge=1, le=4096)]] = Field(
        min_length=2, max_length=2, description="feature maps of the two convolutions"
    )
    kernel: int = Field(ge=1, le=31, description="pixels: side of both convolutions' kernels, odd")
    hidden: int = Field(ge=1, le=65_536, description="units of the fully connected layer")
    dropout: float = Field(ge=0, lt=1, description="share of them that is silent in a training step")
    classes: int = Field(ge=2, le=1000, description="outputs")

    @model_validator(mode="after")
    def _consistent(self) -> CNNModelParams:
        if self.kernel % 2 == 0:
            raise ValueError("kernel must be odd")
        return self


class RoutingLayerParams(Section):
    """What a layer of routed capsules starts from."""

    sd: float = Field(gt=0, le=10, description="of the transformations")
    beta_a: float = Field(ge=-1e6, le=1e6, description="nats: what a capsule saves by being active")
    beta_u: float = Field(ge=-1e6, le=1e6, description="nats: what each number of a vote costs if nobody explains it")


class MatrixCapsulesModelParams(Section):
    """Matrix capsules with EM routing, document 004."""

    views: int = Field(ge=1, le=16, description="channels of an image: 2 for a stereo pair")
    channels: int = Field(ge=1, le=4096, description="feature maps of the convolution, A")
    kernel: int = Field(ge=1, le=31, description="pixels: side of its kernels")
    stride: int = Field(ge=1, le=16, description="pixels: its step")
    primary_types: int = Field(ge=1, le=1024, description="primary capsules at each position, B")
    types: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        description="capsules at each position of the convolutional capsule layers, C and D"
    )
    capsule_kernel: int = Field(ge=1, le=31, description="positions: side of their receptive fields, K")
    capsule_strides: list[Annotated[int, Field(ge=1, le=16)]] = Field(description="positions: their steps")
    pose: Literal["matrix", "vector"] = Field(
        description="a square matrix, times one of its size; or a vector of as many numbers, times a full matrix"
    )
    pose_side: int = Field(ge=2, le=16, description="rows, and columns, of a pose")
    coordinate_addition: bool = Field(description="positions are added to votes for class capsules")
    coordinate_scale: float = Field(gt=0, le=1, description="what one position's step adds")
    classes: int = Field(ge=2, le=1000, description="class capsules")

    iterations: int = Field(ge=1, le=100, description="of EM routing")
    activation: Literal["mdl", "mixing", "bayes"] = Field(
        description="logistic of the description length saved (equation 2), share of what is assigned in the layer "
        "(section 5), or variational Bayes in place of EM (Ribeiro et al. 2020)"
    )
    competition: Literal["all", "position"] = Field(
        description="capsules that one below divides itself among: all that see it, or, as some reimplementations have "
        "it, those of each position by itself"
    )
    inverse_temperature: float = Field(gt=0, le=1e6, description="lambda after infinitely many iterations")
    inverse_temperature_rate: float = Field(
        ge=0, lt=1, description="iteration i, from 0, has lambda (1 - rate^(i + 1)); 0: lambda stays"
    )
    class_inverse_temperature: float = Field(gt=0, le=100, description="factor on lambda in the class layer")
    damping: float = Field(ge=0, lt=1, description="share of the mean before in the new mean")
    variance_floor: float = Field(gt=0, le=1, description="added to the variances of votes")
    saving: float | None = Field(
        gt=0,
        le=1e4,
        description="nats: before training, betas are set so that, on some images, a whole vote assigned to an active "
        "capsule saves so much, and the average capsule breaks even; null: they start as told",
    )
    convolutional: RoutingLayerParams
    last: RoutingLayerParams
    primary_pose_sd: float = Field(gt=0, le=10, description="of weights of primary poses at the start")
    primary_activation_sd: float = Field(gt=0, le=10, description="of weights of primary activations at the start")
    primary_bias: float = Field(ge=-100, le=100, description="of primary activations at the start, before the logistic")

    loss: Literal["spread", "margin", "cross-entropy"] = Field(description="of the class capsules' activations")
    first_margin: float = Field(ge=0, le=1, description="of the spread loss at the start")
    last_margin: float = Field(ge=0, le=1, description="of the spread loss in the end, and in validation")
    margin_epochs: float = Field(
        gt=0, description="the margin grows as logistic(epoch / margin_epochs - 4): halfway after four of these"
    )
    weight_decay: float = Field(ge=0, le=1, description="factor on half the squared weights in the loss")

    @model_validator(mode="after")
    def _consistent(self) -> MatrixCapsulesModelParams:
        if len(self.capsule_strides) != len(self.types):
            raise ValueError("capsule_strides must name one step for each layer of types")
        if self.first_margin > self.last_margin:
            raise ValueError(f"first_margin must not exceed last_margin ({self.last_margin})")
        return self


class SweepParams(Section):
    """Training and testing on rotations up to an angle, document 000, Figure 4."""

    angles: list[Angle] = Field(min_length=1, description="trained and tested on rotations within each of these")
    runs: list[Name] = Field(min_length=1, description="keys of `runs` that the sweep starts from")
    replicas: int = Field(ge=1, le=1000, description="seeds trained at each angle")
    training_share: float = Field(gt=0, le=1, description="epochs at each angle / the run's own epochs")


class SensitivityHyperparameters(Section):
    """The values each is set to, the others staying, beside the run's own value of it."""

    pose_sd_floor: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        description="least sd c_ij of a part's pose; pose_sd_start moves along by the same ratio"
    )
    pixel_sd: list[Annotated[float, Field(gt=0, le=1)]] = Field(description="sd of a pixel around the rendering")
    temperature: list[Annotated[float, Field(gt=0, le=10)]] = Field(description="of the relaxed presences")


class SensitivityParams(Section):
    """The hyperparameters that document 000, appendix B, calls fairly important."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    replicas: int = Field(ge=1, le=1000, description="seeds trained at each value")
    hyperparameters: SensitivityHyperparameters


class FailureParams(Section):
    """What goes wrong, in numbers: document 000, section 5.4, Figures 5 to 7."""

    turns: list[Annotated[float, Field(gt=0, le=MAX_ANGLE)]] = Field(
        min_length=1, description="degrees: every image is turned by each of these, and its poses compared (Figure 5)"
    )
    images: int = Field(ge=1, description="test images turned, or compared by part (the first ones), at most")
    starts: int = Field(ge=1, le=360, description="rotations that an alignment of two templates starts from (Figure 6)")
    steps: int = Field(ge=0, le=10_000, description="gradient steps of an alignment")
    threshold: float = Field(gt=0, lt=1, description="correlation from which two aligned templates count as copies")
    seed: int = Field(ge=0, description="seed of the rotations, and of the strokes that templates are compared with")


class _Run(Section):
    dataset: Name = Field(description="a key of `datasets`")
    replicas: int = Field(ge=1, le=1000, description="seeds trained: seed, seed + 1, ...")
    seed: int = Field(ge=0, description="seed of the first replica")
    augmentation: AugmentationParams | CropParams = Field(description="what is done to images before training")
    training: TrainingParams


class GenerativeRun(_Run):
    """A run of the probabilistic capsule model."""

    variant: Literal["generative"]
    augmentation: AugmentationParams
    model: GenerativeModelParams


class VAERun(_Run):
    """A run of the variational autoencoder."""

    variant: Literal["vae"]
    augmentation: AugmentationParams
    model: VAEModelParams


class SCAERun(_Run):
    """A run of the stacked capsule autoencoder."""

    variant: Literal["scae"]
    augmentation: AugmentationParams
    model: SCAEModelParams


class CapsNetRun(_Run):
    """A run of CapsNet."""

    variant: Literal["capsnet"]
    augmentation: AugmentationParams
    model: CapsNetModelParams


class MatrixCapsulesRun(_Run):
    """A run of matrix capsules."""

    variant: Literal["matrix_capsules"]
    augmentation: CropParams
    model: MatrixCapsulesModelParams


class CNNRun(_Run):
    """A run of the convolutional network."""

    variant: Literal["cnn"]
    augmentation: CropParams
    model: CNNModelParams


CLASSIFIERS = ("capsnet", "matrix_capsules", "cnn")
"""Variants that learn from labels; reports show them by themselves."""

Run = Annotated[
    GenerativeRun | VAERun | SCAERun | CapsNetRun | MatrixCapsulesRun | CNNRun, Field(discriminator="variant")
]


class EvaluateParams(Section):
    """Linear probes and out-of-distribution tests, document 000, Table 1."""

    angles: list[Angle] = Field(min_length=1, description="test rotations: uniform within each of these")
    affine_versions: int = Field(ge=1, le=32, description="random affine versions of each test image")
    official_affnist: bool = Field(
        description="test runs on 40x40 pixels on affNIST's own images too; `sources` must list affnist"
    )
    probe_images: int = Field(ge=10, description="training images a probe is fit on (the first ones), at most")
    probe_strengths: list[Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="inverse regularisation strengths tried; validation chooses"
    )
    seed: int = Field(ge=0, description="seed of the test warps")


class _Engine(Section):
    steps: int = Field(ge=1, le=100_000, description="gradient evaluations of an image in one climb, at most")
    tolerance: float = Field(
        gt=0,
        description="nats: an image whose bound rises by less over some evaluations has converged; a sampled bound is "
        "too noisy to tell, and takes all steps",
    )


class AdamEngine(_Engine):
    """Adam on the variational parameters, as in document 000, section 2.4."""

    method: Literal["adam"]
    bound: Literal["sampled", "analytic"] = Field(
        description="what is raised: one fresh sample of the presences at each step, or their noise integrated out"
    )
    learning_rate: float = Field(gt=0, le=1, description="first step size; falls to a tenth along a cosine")


class _Restarted(_Engine):
    restarts: int = Field(
        ge=0, le=100, description="climbs from a little off the best found, which often find a better"
    )


class LBFGSEngine(_Restarted):
    """Limited-memory BFGS on the analytic bound, a line search for each image."""

    method: Literal["l-bfgs"]
    memory: int = Field(ge=1, le=100, description="moves that the curvature is read off")


class GaussNewtonEngine(_Restarted):
    """Damped Gauss-Newton steps (Levenberg-Marquardt) on the analytic bound."""

    method: Literal["gauss-newton"]


Engine = Annotated[AdamEngine | LBFGSEngine | GaussNewtonEngine, Field(discriminator="method")]


class OptimiseParams(Section):
    """One study of free-form variational optimisation, document 000, section 2.4."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    angles: list[Angle] = Field(min_length=1, description="rotations of the images: uniform within each of these")
    images: int = Field(ge=1, description="test images per angle, optimised as one batch")
    refit_images: int = Field(
        ge=10, description="training images (the first ones) optimised too, for a probe fit on what that finds"
    )
    engines: dict[Name, Engine] = Field(min_length=1, description="engines compared")
    chosen: Name = Field(description="a key of `engines`, whose posteriors are drawn and get a probe of their own")
    seed: int = Field(ge=0, description="seed of the rotations and of the presence noise")

    @model_validator(mode="after")
    def _consistent(self) -> OptimiseParams:
        if self.chosen not in self.engines:
            raise ValueError(f"chosen must be one of {sorted(self.engines)}")
        return self


class InferCondition(Section):
    """What iterative inference descends (`pipeline/inference/predictive_coding.py`)."""

    output: Literal["predicted", "free"] = Field(
        description="class capsules: what the last layer predicts, or activities of their own"
    )
    label: Literal["clamped", "free"] = Field(description="whether lengths of class capsules have the class for target")
    penalty: Literal["none", "L1", "L2"] = Field(description="on class capsules: none, lengths, half their squares")
    weight: float = Field(ge=0, le=1000, description="factor on the penalty; 0 where there is none")

    @model_validator(mode="after")
    def _consistent(self) -> InferCondition:
        if (self.penalty == "none") != (self.weight == 0):
            raise ValueError("weight must be 0 where penalty is none, and nowhere else")
        return self


class InferParams(Section):
    """One study of iterative inference in a trained capsule network, document 001, section 3.1 and appendix C."""

    run: Name = Field(description="a key of `runs` whose variant is capsnet")
    images: int = Field(
        ge=1, description="test images (the first ones), inferred as one batch; the forward pass is measured on all"
    )
    conditions: list[InferCondition] = Field(min_length=1, description="what is descended, one after another")
    steps: int = Field(ge=1, le=100_000, description="gradient steps")
    rate: float = Field(gt=0, le=1, description="of a step")


class PosteriorParams(Section):
    """One study of the full variational posterior over poses, document 000, section 2.3."""

    run: Name = Field(description="a key of `runs` whose variant is generative, with delta poses")
    replicas: int = Field(ge=1, le=1000, description="of the run's, the first ones")
    epochs: int = Field(ge=1, le=10_000, description="epochs the encoder is trained further with Gaussian poses")
    images: int = Field(ge=1, description="test images that bounds are measured on (the first ones)")
    samples: int = Field(ge=1, le=100_000, description="samples K of each image's bounds")
    sd_grid: list[Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="sds of parts and of objects tried around delta poses; validation chooses"
    )
    grid_samples: int = Field(ge=1, le=10_000, description="samples of each validation image for each pair of sds")
    seed: int = Field(ge=0, description="seed of the samples")


class ScheduleParams(Section):
    """How capsule regression is fit, document 002, sections 2.3 and 3.1."""

    momentum: float = Field(ge=0, lt=1, description="gamma of equation 27")
    thresholds: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        min_length=1, description="nu of each round: examples whose runner-up is less probable by it keep their means"
    )
    patience: list[Annotated[int, Field(ge=1)]] = Field(
        min_length=1, description="iterations without a lower validation error that end each round"
    )
    most_iterations: int = Field(ge=1, le=1_000_000, description="iterations of a problem, at most")

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleParams:
        if len(self.thresholds) != len(self.patience):
            raise ValueError(f"patience must have an entry for each of {len(self.thresholds)} thresholds")
        return self


Decision = Literal["multiclass", "one-vs-all", "all-vs-all"]
CapsuleSize = Annotated[int, Field(ge=1, le=256)]


class _RegressionStudy(Section):
    dataset: Name = Field(description="a key of `datasets`")
    features: int = Field(ge=1, le=65_536, description="leading directions p of the training images that inputs are")


class GridStudy(_RegressionStudy):
    """Errors by capsule size and architecture, document 002, Figures 2 to 5."""

    study: Literal["grid"]
    sizes: list[CapsuleSize] = Field(min_length=1, description="numbers d of a capsule, each tried")
    decisions: list[Decision] = Field(min_length=1, description="architectures fit at every size")
    baselines: list[Literal["logistic-regression", "nearest-neighbours", "random-forest", "support-vectors"]] = Field(
        description="classifiers of scikit-learn on the same inputs"
    )
    schedule: ScheduleParams


class ConvergenceStudy(_RegressionStudy):
    """Likelihood and error over iterations, document 002, Figures 6 and 7."""

    study: Literal["convergence"]
    size: CapsuleSize = Field(description="numbers d of a capsule")
    iterations: int = Field(ge=2, le=100_000, description="of every fit")
    momentum: float = Field(gt=0, lt=1, description="gamma of the updates that have one")
    threshold: float = Field(gt=0, le=1, description="nu of the updates that have one")


class StartsStudy(_RegressionStudy):
    """Random starts against the subspace start, document 002, Figure 8."""

    study: Literal["starts"]
    size: CapsuleSize = Field(description="numbers d of a capsule")
    iterations: int = Field(ge=2, le=100_000, description="of every fit")
    momentum: float = Field(ge=0, lt=1, description="gamma")
    threshold: float = Field(ge=0, le=1, description="nu")
    sds: list[Annotated[float, Field(gt=0)]] = Field(min_length=1, description="sds of the numbers of random starts")
    seeds: int = Field(ge=1, le=1000, description="random starts of each sd")
    seed: int = Field(ge=0, description="seed of the first")


class ExactnessStudy(_RegressionStudy):
    """Closed forms against Monte Carlo, document 002, section 2.2."""

    study: Literal["exactness"]
    size: CapsuleSize = Field(description="numbers d of a capsule")
    images: int = Field(ge=1, description="test images looked at (the first ones)")
    samples: int = Field(ge=100, description="of the hidden variables of each image")
    seed: int = Field(ge=0, description="seed of the samples")
    schedule: ScheduleParams


class OnlineStudy(_RegressionStudy):
    """Incremental and online EM against batch EM, document 002, section 4."""

    study: Literal["online"]
    size: CapsuleSize = Field(description="numbers d of a capsule")
    batches: int = Field(ge=2, le=10_000, description="batches that a pass over the training images comes in")
    passes: int = Field(ge=1, le=100_000, description="over the training images, of every method")
    momentum: float = Field(gt=0, lt=1, description="gamma of the batch method that has one")
    rate: float = Field(gt=0.5, le=1, description="alpha: online EM's step sizes are (t + 2)^-alpha")
    seed: int = Field(ge=0, description="seed of the batches")


class RidgeStudy(_RegressionStudy):
    """A penalty on squared weights, document 002, section 4."""

    study: Literal["ridge"]
    size: CapsuleSize = Field(description="numbers d of a capsule")
    decision: Decision = Field(description="the architecture that is fit")
    penalties: list[Annotated[float, Field(ge=0)]] = Field(
        min_length=1, description="in mean squares of a feature times the number of examples; 0 is tried as well"
    )
    schedule: ScheduleParams


class SizesStudy(_RegressionStudy):
    """Capsules of different sizes by class, document 002, section 4."""

    study: Literal["sizes"]
    size: CapsuleSize = Field(description="of the capsules where they are equal; the others share the same total out")
    schedule: ScheduleParams


class DistortedStudy(_RegressionStudy):
    """Training on distorted copies, document 002, section 3.4."""

    study: Literal["distorted"]
    size: CapsuleSize = Field(description="numbers d of a capsule")
    decision: Decision = Field(description="the architecture that is fit")
    examples: int = Field(ge=1, le=10_000_000, description="training images and distorted copies of them together")
    strengths: list[Annotated[float, Field(gt=0, le=3)]] = Field(
        min_length=1, description="factors on how far copies are distorted, each tried; validation chooses"
    )
    seed: int = Field(ge=0, description="seed of the distortions")
    schedule: ScheduleParams


RegressionStudy = Annotated[
    GridStudy
    | ConvergenceStudy
    | StartsStudy
    | ExactnessStudy
    | OnlineStudy
    | RidgeStudy
    | SizesStudy
    | DistortedStudy,
    Field(discriminator="study"),
]


class ToyStudy(Section):
    """Appendix B's network of three hidden units, document 001, Figure 3."""

    study: Literal["toy"]
    weights: list[Annotated[float, Field(gt=0, le=10)]] = Field(min_length=1, description="of the penalty, each tried")
    rate: float = Field(gt=0, lt=0.05, description="step size of the inference")
    steps: int = Field(ge=1, le=1_000_000, description="of the inference")


class _SceneStudy(Section):
    scenes: int = Field(ge=2, le=100_000, description="planted in every setting")
    parts: int = Field(ge=2, le=1000, description="m of every scene")
    objects: int = Field(ge=2, le=1000, description="n object capsules")
    dimensions: int = Field(ge=2, le=256, description="of poses of parts and objects")
    sigmas: list[Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="sds of parts around their predictions, in those of an object's pose, each tried"
    )
    seed: int = Field(ge=0, description="of transformations, scenes and starts")


class IteratedStudy(_SceneStudy):
    """Attention over iterations, document 001, section 4.1."""

    study: Literal["iterated"]
    iterations: int = Field(ge=2, le=10_000, description="of equation 6")
    scales: list[Annotated[float, Field(gt=0)]] = Field(min_length=1, description="of its scores; 1 is the paper's")


class DensityStudy(Section):
    """Samples against densities of the top-down model, document 001, section 4.2."""

    study: Literal["density"]
    dimensions: list[Annotated[int, Field(ge=2, le=256)]] = Field(min_length=1, description="of poses, each tried")
    kappas: list[Annotated[float, Field(gt=0)]] = Field(min_length=1, description="concentrations, each tried")
    components: int = Field(ge=2, le=1000, description="predictions of one part")
    sigma: float = Field(gt=0, description="sd of poses; predictions have 1")
    samples: int = Field(ge=1000, description="of each density")
    seed: int = Field(ge=0, description="of predictions and samples")


class ParsingStudy(_SceneStudy):
    """Inversion against routing on planted scenes, document 001, section 4.2."""

    study: Literal["parsing"]
    shown: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="objects in a scene, each tried")
    clutter: float = Field(ge=0, lt=1, description="share of parts without a parent")
    kappa: float = Field(gt=0, description="concentration of cues")
    iterations: int = Field(ge=1, le=1000, description="of routing as published")
    long_iterations: int = Field(ge=1, le=10_000, description="of routing that is given more")
    routing_starts: int = Field(ge=1, le=1000, description="of EM routing that is given more, in every scene")
    steps: int = Field(ge=2, le=100_000, description="of the inversion")
    rate: float = Field(gt=0, description="its step size")
    starts: int = Field(ge=1, le=1000, description="of it in every scene")
    kept: int = Field(ge=1, le=1000, description="of these, for the second half of its steps")
    samples: int = Field(ge=1, le=1000, description="of the poses at each of its steps")
    judging: int = Field(ge=1, le=10_000, description="samples of the poses by which starts are compared")
    widest: float = Field(ge=1, description="sds of parts that it begins with, in their own")

    @model_validator(mode="after")
    def _enough(self) -> ParsingStudy:
        if max(self.shown) > self.objects:
            raise ValueError(f"shown: {max(self.shown)} objects in a scene where there are {self.objects}")
        return self


AttentionStudy = Annotated[ToyStudy | IteratedStudy | DensityStudy | ParsingStudy, Field(discriminator="study")]


class AblationParams(Section):
    """One condition of document 004, Table 1: a run of matrix capsules with some settings changed."""

    run: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")
    model: dict[str, bool | int | float | str | list[int] | dict[str, float]] = Field(
        description="settings of the run's model that are other, by name; none for the run as it is"
    )


class ViewpointParams(Section):
    """Novel viewpoints with the matched protocol, document 004, section 5.1, Table 2."""

    axis: Literal["azimuth", "elevation"] = Field(description="along which viewpoints are familiar or novel")
    dataset: Name = Field(description="a key of `datasets` whose viewpoints are known")
    capsules: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    cnn: Name = Field(description="a key of `runs` whose variant is cnn")
    epochs: int = Field(ge=1, le=10_000, description="passes over the familiar training images")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")


class AttackParams(Section):
    """Adversarial images, document 004, section 6."""

    capsules: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    cnn: Name = Field(description="a key of `runs` whose variant is cnn, with two replicas at least")
    images: int = Field(ge=1, description="test images attacked (the first ones)")
    epsilons: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        min_length=1, description="most that a pixel changes, images in [0, 1]"
    )
    steps: int = Field(ge=2, le=1000, description="of the basic iterative method")


class Params(Section):
    """Everything in `params.yaml`."""

    profile: Name = Field(description="the profile these values belong to; names the folder under reports/")
    device: Literal["auto", "cpu", "cuda"] = Field(description="auto: the GPU where there is one")
    sources: list[
        Literal[
            "digits",
            "mnist",
            "fashion-mnist",
            "affnist",
            "cifar10",
            "smallnorb",
            "smallnorb48",
            "smallnorb48-posed",
            "toys",
        ]
    ] = Field(description="raw data to download")
    datasets: dict[Name, DatasetParams]
    runs: dict[Name, Run]
    evaluate: EvaluateParams
    optimise: dict[Name, OptimiseParams]
    posterior: dict[Name, PosteriorParams]
    infer: dict[Name, InferParams]
    sweep: SweepParams
    failures: FailureParams
    sensitivity: SensitivityParams
    regression: dict[Name, RegressionStudy]
    attention: dict[Name, AttentionStudy]
    ablation: dict[Name, AblationParams]
    viewpoint: dict[Name, ViewpointParams]
    attack: dict[Name, AttackParams]

    @model_validator(mode="after")
    def _references(self) -> Params:
        for name, dataset in self.datasets.items():
            if dataset.source not in self.sources:
                raise ValueError(f"datasets.{name}.source: '{dataset.source}' is not one of sources {self.sources}")
        if self.evaluate.official_affnist and "affnist" not in self.sources:
            raise ValueError(f"evaluate.official_affnist: 'affnist' is not one of sources {self.sources}")
        for name, run in self.runs.items():
            if run.dataset not in self.datasets:
                raise ValueError(f"runs.{name}.dataset: '{run.dataset}' is not one of {sorted(self.datasets)}")
        for name, study in self.optimise.items():
            run_of_study = self.runs.get(study.run)
            if run_of_study is None or run_of_study.variant != "generative":
                generative = sorted(key for key, run in self.runs.items() if run.variant == "generative")
                raise ValueError(f"optimise.{name}.run: '{study.run}' is not one of {generative}")
            if run_of_study.model.slots != "own" or run_of_study.model.pose_posterior != "delta":
                raise ValueError(f"optimise.{name}.run: '{study.run}' must have slots: own and pose_posterior: delta")
        for name, posterior in self.posterior.items():
            start = self.runs.get(posterior.run)
            if start is None or start.variant != "generative" or start.model.pose_posterior != "delta":
                raise ValueError(f"posterior.{name}.run: '{posterior.run}' is no generative run with delta poses")
            if posterior.replicas > start.replicas:
                raise ValueError(f"posterior.{name}.replicas: '{posterior.run}' has {start.replicas}")
        for name, inference in self.infer.items():
            network = self.runs.get(inference.run)
            if network is None or network.variant != "capsnet":
                capsnets = sorted(key for key, run in self.runs.items() if run.variant == "capsnet")
                raise ValueError(f"infer.{name}.run: '{inference.run}' is not one of {capsnets}")
        for name in self.sweep.runs:
            if name not in self.runs or isinstance(self.runs[name].augmentation, CropParams):
                known = sorted(key for key, run in self.runs.items() if not isinstance(run.augmentation, CropParams))
                raise ValueError(f"sweep.runs: '{name}' is not one of {known}")
        for name, regression in self.regression.items():
            if regression.dataset not in self.datasets:
                known = sorted(self.datasets)
                raise ValueError(f"regression.{name}.dataset: '{regression.dataset}' is not one of {known}")
        self._check_classifiers()
        varied_run = self.runs.get(self.sensitivity.run)
        if varied_run is None or varied_run.variant != "generative":
            generative = sorted(key for key, run in self.runs.items() if run.variant == "generative")
            raise ValueError(f"sensitivity.run: '{self.sensitivity.run}' is not one of {generative}")
        for name, values in self.sensitivity.hyperparameters.model_dump().items():
            for value in values:
                try:
                    varied_model(varied_run.model, name, value)
                except ValidationError as error:
                    wrong = error.errors()[0]
                    raise ValueError(
                        f"sensitivity.hyperparameters.{name}: {value:g} makes no model "
                        f"({'.'.join(map(str, wrong['loc']))}: {wrong['msg']})"
                    ) from None
        return self

    def _check_classifiers(self) -> None:
        """The studies of document 004 name runs of the right kind, and changes that make a model."""

        def known(where: str, name: str, variant: str) -> Run:
            run = self.runs.get(name)
            if run is None or run.variant != variant:
                fitting = sorted(key for key, run in self.runs.items() if run.variant == variant)
                raise ValueError(f"{where}: '{name}' is not one of {fitting}")
            return run

        for name, ablation in self.ablation.items():
            run = known(f"ablation.{name}.run", ablation.run, "matrix_capsules")
            assert isinstance(run, MatrixCapsulesRun)
            try:
                changed_model(run.model, ablation.model)
            except ValidationError as error:
                wrong = error.errors()[0]
                place = ("runs", ablation.run, run.variant, "model", *wrong["loc"])
                where = ".".join(map(str, ("ablation", name, "model", *wrong["loc"])))
                raise ValueError(f"{where}: {_message(wrong, place)}") from None
        for name, viewpoint in self.viewpoint.items():
            known(f"viewpoint.{name}.capsules", viewpoint.capsules, "matrix_capsules")
            known(f"viewpoint.{name}.cnn", viewpoint.cnn, "cnn")
            if viewpoint.dataset not in self.datasets:
                datasets = sorted(self.datasets)
                raise ValueError(f"viewpoint.{name}.dataset: '{viewpoint.dataset}' is not one of {datasets}")
        for name, attack in self.attack.items():
            known(f"attack.{name}.capsules", attack.capsules, "matrix_capsules")
            if known(f"attack.{name}.cnn", attack.cnn, "cnn").replicas < 2:
                raise ValueError(f"attack.{name}.cnn: '{attack.cnn}' must have 2 replicas: one attacks the other")


_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def _range(place: tuple[str | int, ...]) -> str:
    """What the number at `place` (pydantic's `loc`) allows, such as "at least 1 and at most 256"."""
    schema = Params.model_json_schema()
    node = schema
    for part in place:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
        elif "patternProperties" in node:
            (node,) = node["patternProperties"].values()
        else:
            node = node["items"] if "items" in node else node["properties"][part]
    if "anyOf" in node:  # or null, which allows nothing about numbers
        node = next(form for form in node["anyOf"] if form.get("type") != "null")
    return " and ".join(f"{words} {node[bound]:g}" for bound, words in _BOUNDS.items() if bound in node)


def _describe(error: Any) -> str:
    """One line for one pydantic error: the field as written in the file, what is wrong, what was found."""
    place = error["loc"]
    # pydantic puts what decides the form behind a name: runs, <name>, generative, training, ...
    tag = {"runs": 2, "optimise": 4, "regression": 2, "attention": 2}.get(str(place[0]) if place else "", len(place))
    written = (*place[:tag], *place[tag + 1 :])
    where = ".".join(str(part) for part in written) or "params.yaml"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown parameter"
    if error["type"] == "missing":
        return f"{where}: missing"
    return f"{where}: {_message(error, place)}" if where != "params.yaml" else _message(error, place)


def _message(error: Any, place: tuple[int | str, ...]) -> str:
    """What is wrong with a value, what is allowed at its `place` in the schema, and what was found."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        message = f"must be {_range(place)}"
    found = error.get("input")
    shown = f" (found {found!r})" if isinstance(found, int | float | str | bool) else ""
    return f"{message}{shown}"


def parse_params(values: Any, source: str = "params.yaml") -> Params:
    """Check `values` (the content of a params file) and return it typed.

    Raises:
        ParamsError: naming every field that is unknown, missing or out of range, and what it allows.
    """
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        lines = "\n".join(f"  {_describe(each)}" for each in error.errors())
        raise ParamsError(f"{source} has bad parameters:\n{lines}") from None


def load_params(path: Path) -> Params:
    """Read and check a params file.

    Raises:
        ParamsError: the file is missing, not YAML, or holds bad parameters.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        raise ParamsError(f"{path} is not valid YAML: {error}") from None
    return parse_params(values, path.name)
