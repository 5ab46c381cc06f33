"""Settings of the probabilistic capsule model, document 000."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.learning.settings import AugmentationParams, RunSettings
from pipeline.settings import MAX_ANGLE, Angles, Name, Section, Seed, check_distinct, younger

SCHEDULE = ("temperature_epochs", "seeding_epoch", "early_epochs", "ramp_epochs")
"""Names of settings that give an epoch or a number of epochs. `seeding.teaching_epochs` is handled separately."""


class SeedingParams(Section):
    """Settings of the mixture model of part arrangements that initialises the objects (`model/arrangements.py`)."""

    images: int = Field(ge=1, le=1_000_000, description="maximum number of training images to fit the mixture to")
    iterations: int = Field(ge=1, le=1000, description="iterations of EM")
    teaching_epochs: int = Field(
        ge=0,
        le=10_000,
        description="number of epochs, from seeding_epoch on, in which the encoder of objects learns from the mixture "
        "instead of the bound. The mixture gives every object's pose, and its probability if exactly one object "
        "explains the image. Parts and templates still learn from the pixels",
    )


class GenerativeModelParams(Section):
    """Settings of the model (document 000, section 2, appendix B). `model/generative_model.py` explains the symbols."""

    objects: int = Field(ge=1, le=256, description="number of capsules in the top layer (k = 0)")
    parts: int = Field(ge=1, le=256, description="number of capsules in the bottom layer (k = 1); each has a template")
    template_size: int = Field(ge=2, le=64, description="template height and width, in template pixels")
    template_scale: float = Field(gt=0, le=2, description="initial side of a template, divided by the side of an image")
    template_opacity: float = younger(
        default=0.5,
        gt=0,
        lt=1,
        description="initial opacity of the templates. Choose it near 0 if much of the canvas is empty. At higher "
        "opacity, the first steps erase templates that do not overlap the digits, and erased templates get no gradient",
    )
    temperature: float = Field(gt=0, le=10, description="temperature of the relaxed presences at the start of training")
    final_temperature: float = Field(gt=0, le=10, description="temperature after temperature_epochs, and in evaluation")
    temperature_epochs: int = Field(ge=0, le=10_000, description="epochs of geometric annealing to final_temperature")
    pixel_sd: float = Field(gt=0, le=1, description="sd of a pixel (in [0, 1]) around the rendered value")
    pose_sd_floor: float = Field(gt=0, le=10, description="minimum sd c_ij of a part's pose around its parent's vote")
    pose_sd_start: float = Field(gt=0, le=10, description="initial sd c_ij; must exceed pose_sd_floor")
    inactive_pose_sd: float = Field(gt=0, le=100, description="sd lambda_off of an absent part's pose")
    inactive_pose: Literal["initial", "mean", "zero"] = Field(
        description="mean of the pose of an absent part. initial: the part's initial pose; mean: the part's mean pose "
        "at seeding_epoch, weighted by its presence; zero: 0, as printed in equation 6"
    )
    slots: Literal["own", "any"] = Field(
        description="own: each part has its own place in a parent (as published); any: the likelihood sums over places"
    )
    affinities: Literal["learned", "uniform"] = Field(description="rho_ij of objects. learned: 1 at first; uniform: 1")
    dummy_affinity: float = Field(gt=0, le=10, description="affinity rho_0j of the dummy parent, which is always on")
    dummy_pose_sd: float = Field(gt=0, le=100, description="sd c_0j of a part's pose if the dummy is its parent")
    object_presence: float = Field(gt=0, lt=1, description="prior probability p that an object is present")
    pose_posterior: Literal["delta", "gaussian"] = Field(
        description="posterior of poses. delta: a point; gaussian: its sds are computed by the encoder (section 2.3)"
    )
    pose_posterior_sd_start: float = Field(gt=0, le=10, description="initial sd of each component of a gaussian pose")

    channels: int = Field(ge=1, le=1024, description="channels of each of the encoder's four convolutions")
    part_features: int = Field(ge=1, le=1024, description="number of features of a part, pooled by attention")
    hidden: int = Field(ge=4, le=4096, description="width of the set transformer and of each capsule's MLP")
    heads: int = Field(ge=1, le=64, description="number of attention heads; must divide hidden")
    inducing: int = Field(ge=1, le=1024, description="number of inducing points of each attention block")
    blocks: int = Field(ge=1, le=32, description="number of induced set attention blocks")
    code: int = Field(ge=1, le=1024, description="number of features per object after the set transformer")

    seeding_epoch: int = Field(ge=0, le=10_000, description="epochs before M_ij is set from parts, if more follow")
    seeding: SeedingParams | None = Field(
        description="the mixture that sets M_ij, gamma_ij and c_ij; null: each object's M_ij is set from one image"
    )
    early_coupling: float = Field(
        ge=0, le=1, description="initial factor on the parts' gradients of all terms of the bound except the pixels'"
    )
    early_epochs: int = Field(ge=0, le=10_000, description="number of epochs with the factor early_coupling")
    ramp_epochs: int = Field(ge=0, le=10_000, description="epochs after early_epochs in which the factor rises to 1")

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

        If `name` is `pose_sd_floor`, `pose_sd_start` is scaled by the same factor: a floor above the start is invalid,
        and a floor close to the start leaves the sds c_ij no room to shrink. `inactive_pose_sd` is scaled, too, because
        its ratio to c_ij affects the log density that a part gains by being present. If `name` is `temperature`,
        `final_temperature` is scaled, too: a change of the temperature at the start only would have little effect.

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

    def _needs(self) -> dict[str, tuple[bool, tuple[str, ...]]]:
        model = self.model
        return {
            "pose_posterior: gaussian": (model.pose_posterior == "gaussian", ("pose_posterior_sd_start",)),
            "another final_temperature": (model.final_temperature != model.temperature, ("temperature_epochs",)),
            "early_coupling below 1": (model.early_coupling < 1, ("early_epochs", "ramp_epochs")),
        }

    def _schedule_for(self, epochs: int) -> dict[str, Any]:
        share = epochs / self.training.epochs

        def shortened(time: int) -> int:
            # A number above 0 stays at least 1. If it were rounded to 0, a phase of training would be skipped.
            return max(round(time * share), min(time, 1))

        seeding = self.model.seeding
        if seeding is not None:
            seeding = seeding.model_copy(update={"teaching_epochs": shortened(seeding.teaching_epochs)})
        return {name: shortened(getattr(self.model, name)) for name in SCHEDULE} | {"seeding": seeding}


class _Engine(Section):
    steps: int = Field(ge=1, le=100_000, description="maximum number of iterations for each image and start")
    tolerance: float = Field(
        gt=0,
        le=1e6,
        description="nats: an image has converged if its bound rises by at most this value in several iterations. A "
        "sampled bound is too noisy for this test, so all steps are used",
    )


class AdamEngine(_Engine):
    """Adam on the variational parameters, as in document 000, section 2.4."""

    method: Literal["adam"]
    bound: Literal["sampled", "analytic"] = Field(
        description="presences in the bound. sampled: a new sample at each step; analytic: noise is integrated out"
    )
    learning_rate: float = Field(gt=0, le=1, description="initial step size, which decays to a tenth along a cosine")


class _Restarted(_Engine):
    restarts: int = Field(
        ge=0, le=100, description="number of restarts from the best state, with noise added to its poses"
    )


class LBFGSEngine(_Restarted):
    """Limited-memory BFGS on the analytic bound, with a line search for each image."""

    method: Literal["l-bfgs"]
    memory: int = Field(ge=1, le=100, description="number of past steps that estimate the curvature")


class GaussNewtonEngine(_Restarted):
    """Damped Gauss-Newton steps (Levenberg-Marquardt) on the analytic bound."""

    method: Literal["gauss-newton"]


Engine = Annotated[AdamEngine | LBFGSEngine | GaussNewtonEngine, Field(discriminator="method")]
"""Settings of an engine of test-time inference."""


class FailureParams(Section):
    """Settings of the failure analysis (document 000, section 5.4, Figures 5 to 7)."""

    turns: Annotated[list[Annotated[float, Field(gt=0, le=MAX_ANGLE)]], AfterValidator(check_distinct)] = Field(
        min_length=1, description="degrees: images are rotated by these angles, to compare poses of parts (Figure 5)"
    )
    images: int = Field(ge=1, le=10_000_000, description="maximum number of test images (the first ones)")
    starts: int = Field(ge=1, le=360, description="number of initial rotations to align two templates (Figure 6)")
    steps: int = Field(ge=0, le=10_000, description="number of gradient steps of an alignment")
    threshold: float = Field(gt=0, lt=1, description="lowest correlation at which two aligned templates are copies")
    seed: Seed = Field(description="seed of the rotations and of random strokes")


class PosteriorParams(Section):
    """One study that compares a full variational posterior over poses with delta poses (document 000, section 2.3)."""

    run: Name = Field(description="a key of `runs` whose variant is generative, with delta poses")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    epochs: int = Field(
        ge=1, le=10_000, description="further epochs of the encoder, once with Gaussian poses and once with delta poses"
    )
    images: int = Field(ge=1, le=10_000_000, description="maximum number of test images for bounds (the first ones)")
    samples: int = Field(ge=1, le=100_000, description="number K of samples for the bounds of an image")
    sd_grid: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        min_length=1,
        description="sds of Gaussians around delta poses. Validation selects one for parts, one for objects",
    )
    grid_samples: int = Field(ge=1, le=10_000, description="number of samples per validation image and pair of sds")
    seed: Seed = Field(description="seed of the samples")


class OptimiseParams(Section):
    """One study of free-form optimisation, with variational parameters for each image (document 000, section 2.4)."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    angles: Angles = Field(description="degrees: for each angle, rotations are uniform in [-angle, +angle]")
    images: int = Field(ge=1, le=10_000_000, description="maximum number of test images (the first ones), in one batch")
    refit_images: int = Field(
        ge=10, le=10_000_000, description="maximum number of training images for a probe on optimised posteriors"
    )
    engines: dict[Name, Engine] = Field(min_length=1, description="engines to compare")
    chosen: Name = Field(description="a key of `engines`; figures and the refit probe use its posteriors")
    kick_logit: float = Field(
        gt=0,
        le=10,
        description="sd of the noise that restarts add to log odds of presences, in one extra optimisation by the "
        "chosen engine. It measures this noise's effect on accuracy. All other restarts add noise only to poses",
    )
    seed: Seed = Field(description="seed of the rotations, of the presence noise and of restarts")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.chosen not in self.engines:
            raise ValueError(f"chosen must be one of {sorted(self.engines)}")
        return self
