"""Settings of the probabilistic capsule model, document 000."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.learning.settings import AugmentationParams, RunSettings
from pipeline.settings import MAX_ANGLE, Angles, Name, Section, Seed, check_distinct, younger

SCHEDULE = ("temperature_epochs", "seeding_epoch", "early_epochs", "ramp_epochs")
"""Settings of the model that are an epoch or a number of epochs, except `teaching_epochs`, which is in `seeding`."""


class SeedingParams(Section):
    """A mixture of affine arrangements of parts, fitted by EM, to initialise the objects (`model/arrangements.py`)."""

    images: int = Field(ge=1, le=1_000_000, description="maximum number of training images to fit the mixture to")
    iterations: int = Field(ge=1, le=1000, description="iterations of EM")
    teaching_epochs: int = Field(
        ge=0,
        le=10_000,
        description="epochs from seeding_epoch on in which the encoder of the objects learns from the mixture, not "
        "from the bound: which object explains an image, if exactly one does, and with which pose; parts and templates "
        "go on learning from the pixels",
    )


class GenerativeModelParams(Section):
    """Probabilistic capsules, document 000, section 2 and appendix B."""

    objects: int = Field(ge=1, le=256, description="capsules of the top layer (k = 0)")
    parts: int = Field(ge=1, le=256, description="capsules of the bottom layer (k = 1), one template each")
    template_size: int = Field(ge=2, le=64, description="template height and width, in template pixels")
    template_scale: float = Field(gt=0, le=2, description="side of a part's template at its initial pose / image side")
    template_opacity: float = younger(
        default=0.5,
        gt=0,
        lt=1,
        description="initial opacity of the templates; near 0 if digits leave much of the canvas empty: else "
        "the first steps erase templates that lie beside the ink, and erased templates get no gradient",
    )
    temperature: float = Field(gt=0, le=10, description="temperature of the relaxed presences at the start of training")
    final_temperature: float = Field(gt=0, le=10, description="temperature after temperature_epochs, and in evaluation")
    temperature_epochs: int = Field(ge=0, le=10_000, description="epochs of geometric annealing of the temperature")
    pixel_sd: float = Field(gt=0, le=1, description="sd of a pixel around the rendering, images in [0, 1]")
    pose_sd_floor: float = Field(gt=0, le=10, description="minimum sd c_ij of a part's pose around its parent's vote")
    pose_sd_start: float = Field(gt=0, le=10, description="sd c_ij at the start; above pose_sd_floor")
    inactive_pose_sd: float = Field(gt=0, le=100, description="sd lambda_off of an absent part's pose")
    inactive_pose: Literal["initial", "mean", "zero"] = Field(
        description="mean of an absent part's pose: the part's initial pose, its mean pose at seeding_epoch (weighted "
        "by its presence), or zero as printed in equation 6"
    )
    slots: Literal["own", "any"] = Field(
        description="place of a part in its parent: its own (as published), or any of the parts' places, marginalised"
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

    seeding_epoch: int = Field(ge=0, le=10_000, description="epochs before M_ij is set from parts of training images")
    seeding: SeedingParams | None = Field(
        description="M_ij, gamma_ij, c_ij from a mixture fitted to many images; null: M_ij from one image per object"
    )
    early_coupling: float = Field(ge=0, le=1, description="factor on the hierarchy's gradient into the parts at first")
    early_epochs: int = Field(ge=0, le=10_000, description="epochs at early_coupling, while objects specialise")
    ramp_epochs: int = Field(ge=0, le=10_000, description="epochs over which the factor then rises to 1")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.pose_sd_start <= self.pose_sd_floor:
            raise ValueError(f"pose_sd_start must exceed pose_sd_floor ({self.pose_sd_floor})")
        if self.seeding is not None and self.slots != "own":
            raise ValueError("seeding needs slots: own; with slots: any, parts have no places of their own")
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden ({self.hidden})")
        return self

    def varied(self, name: str, value: float) -> Self:
        """The settings with the hyperparameter `name` set to `value`, and dependent hyperparameters scaled with it.

        `pose_sd_start` is scaled by the same factor as `pose_sd_floor`. A floor above the start is invalid, and a floor
        close to the start leaves no room for the sds to shrink. `inactive_pose_sd` is also scaled by this factor. The
        log density that a part gains by being present depends on the ratio of this sd to c_ij. `final_temperature` is
        scaled by the same factor as `temperature`: a change of `temperature` alone would have little effect.

        Raises:
            ValidationError: the settings with this value are invalid.
        """
        changes = {name: value}
        if name == "pose_sd_floor":
            changes["pose_sd_start"] = self.pose_sd_start * (value / self.pose_sd_floor)
            changes["inactive_pose_sd"] = self.inactive_pose_sd * (value / self.pose_sd_floor)
        if name == "temperature":
            changes["final_temperature"] = self.final_temperature * value / self.temperature
        return self.with_changes(changes)


class GenerativeRun(RunSettings):
    """A run of the probabilistic capsule model."""

    variant: Literal["generative"]
    augmentation: AugmentationParams
    model: GenerativeModelParams

    def _schedule_for(self, epochs: int) -> dict[str, Any]:
        share = epochs / self.training.epochs

        def shortened(time: int) -> int:
            # A number above 0 stays at least 1, even where its share would round to 0.
            return max(round(time * share), min(time, 1))

        seeding = self.model.seeding
        if seeding is not None:
            seeding = seeding.model_copy(update={"teaching_epochs": shortened(seeding.teaching_epochs)})
        return {name: shortened(getattr(self.model, name)) for name in SCHEDULE} | {"seeding": seeding}


class _Engine(Section):
    steps: int = Field(ge=1, le=100_000, description="maximum number of gradient evaluations per image and start")
    tolerance: float = Field(
        gt=0,
        le=1e6,
        description="nats: an image has converged when its bound rises by less than this over some evaluations; with "
        "a sampled bound, too noisy for this test, all steps are used",
    )


class AdamEngine(_Engine):
    """Adam on the variational parameters, as in document 000, section 2.4."""

    method: Literal["adam"]
    bound: Literal["sampled", "analytic"] = Field(
        description="the bound maximised: with one new sample of the presences at each step, or with their noise "
        "integrated out"
    )
    learning_rate: float = Field(gt=0, le=1, description="initial step size; cosine decay to a tenth")


class _Restarted(_Engine):
    restarts: int = Field(
        ge=0, le=100, description="restarts from a perturbation of the best state, which often reach a better state"
    )


class LBFGSEngine(_Restarted):
    """Limited-memory BFGS on the analytic bound, with a line search for each image."""

    method: Literal["l-bfgs"]
    memory: int = Field(ge=1, le=100, description="number of past steps for estimating the curvature")


class GaussNewtonEngine(_Restarted):
    """Damped Gauss-Newton steps (Levenberg-Marquardt) on the analytic bound."""

    method: Literal["gauss-newton"]


Engine = Annotated[AdamEngine | LBFGSEngine | GaussNewtonEngine, Field(discriminator="method")]
"""Settings of an engine of test-time inference."""


class FailureParams(Section):
    """The failure analysis: document 000, section 5.4, Figures 5 to 7."""

    turns: Annotated[list[Annotated[float, Field(gt=0, le=MAX_ANGLE)]], AfterValidator(check_distinct)] = Field(
        min_length=1, description="degrees: angles that every image is rotated by to compare its poses (Figure 5)"
    )
    images: int = Field(
        ge=1, le=10_000_000, description="maximum number of test images (the first ones) in each analysis"
    )
    starts: int = Field(ge=1, le=360, description="initial rotations in the alignment of two templates (Figure 6)")
    steps: int = Field(ge=0, le=10_000, description="gradient steps of an alignment")
    threshold: float = Field(gt=0, lt=1, description="two aligned templates with at least this correlation are copies")
    seed: Seed = Field(description="seed of the rotations, and of the strokes that templates are compared with")


class PosteriorParams(Section):
    """One study of the full variational posterior over poses, document 000, section 2.3."""

    run: Name = Field(description="a key of `runs` whose variant is generative, with delta poses")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    epochs: int = Field(
        ge=1, le=10_000, description="further epochs of training the encoder, with Gaussian poses and with delta poses"
    )
    images: int = Field(ge=1, le=10_000_000, description="test images for measuring bounds (the first ones)")
    samples: int = Field(ge=1, le=100_000, description="number K of samples in each image's bounds")
    sd_grid: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        min_length=1, description="sds of parts and of objects to try around delta poses; chosen on validation images"
    )
    grid_samples: int = Field(ge=1, le=10_000, description="samples per validation image for each pair of sds")
    seed: Seed = Field(description="seed of the samples")


class OptimiseParams(Section):
    """One study of free-form variational optimisation, document 000, section 2.4."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    angles: Angles = Field(description="degrees: ranges of the images' rotations, uniform within +-angle")
    images: int = Field(ge=1, le=10_000_000, description="test images per angle, optimised as one batch")
    refit_images: int = Field(
        ge=10,
        le=10_000_000,
        description="training images (the first ones) optimised for a probe that is fit on optimised posteriors",
    )
    engines: dict[Name, Engine] = Field(min_length=1, description="engines compared")
    chosen: Name = Field(description="a key of `engines`; figures and the refit probe use its posteriors")
    kick_logit: float = Field(
        gt=0,
        le=10,
        description="sd of noise on the log odds of presence in extra restarts of the chosen engine, after which "
        "objects are not refined; they only measure the effect of noise on accuracy. Other restarts perturb poses only",
    )
    seed: Seed = Field(description="seed of the rotations, of the presence noise and of restarts")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.chosen not in self.engines:
            raise ValueError(f"chosen must be one of {sorted(self.engines)}")
        return self
