"""Settings of probes, of the sweep over rotations, and of the measures of equivariance."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from pipeline.settings import Angles, Name, Section, Seed, check_once

LONGEST = 10_000
"""Epochs of a training, at most."""


class SweepParams(Section):
    """Training and testing on rotations up to an angle, document 000, Figure 4."""

    angles: Angles = Field(description="training and test rotations: uniform within each of these")
    runs: Annotated[list[Name], AfterValidator(check_once)] = Field(
        min_length=1, description="keys of `runs` that the sweep starts from"
    )
    replicas: int = Field(ge=1, le=1000, description="seeds trained at each angle")
    training_share: float = Field(gt=0, le=1, description="epochs at each angle / the run's own epochs")


class EvaluateParams(Section):
    """Linear probes and out-of-distribution tests, document 000, Table 1."""

    angles: Angles = Field(description="test rotations: uniform within each of these")
    affine_versions: int = Field(ge=1, le=32, description="random affine versions of each test image")
    official_affnist: bool = Field(
        description="test runs with 40x40 pixels also on affNIST's own images; `sources` must list affnist"
    )
    probe_images: int = Field(
        ge=10, le=10_000_000, description="maximum number of training images (the first ones) to fit a probe on"
    )
    probe_strengths: list[Annotated[float, Field(gt=0, le=1e12)]] = Field(
        min_length=1, description="inverse regularisation strengths to try; chosen on the validation images"
    )
    seed: Seed = Field(description="seed of the test warps")


class DataEfficiencyParams(Section):
    """Training on shares of the images, with as many steps as on all of them."""

    run: Name = Field(description="a key of `runs`")
    shares: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        min_length=1, description="shares of the training and of the validation images, as many of every class"
    )
    epochs: int = Field(ge=1, le=1000, description="passes over all images; smaller shares take as many steps")
    replicas: int = Field(ge=1, le=1000, description="seeds trained on each share")

    @model_validator(mode="after")
    def _consistent(self) -> DataEfficiencyParams:
        if sorted(set(self.shares)) != self.shares:
            raise ValueError("shares must increase")
        if self.epochs / self.shares[0] > LONGEST:
            raise ValueError(f"{self.epochs} epochs / {self.shares[0]:g} of the images are more than {LONGEST} epochs")
        return self


class EquivarianceParams(Section):
    """Equivariance and invariance of a trained run, document 003."""

    run: Name = Field(description="a key of `runs`")
    images: int = Field(ge=8, le=10_000_000, description="maximum number of test images (the first ones)")
    fit_images: int = Field(
        ge=8,
        le=10_000_000,
        description="maximum number of training images (the first ones) that linear maps are fitted to",
    )
    derivative_images: int = Field(
        ge=8, le=10_000_000, description="training images, and as many test images, at which derivatives are taken"
    )
    rotations: list[Annotated[float, Field(gt=0, le=180)]] = Field(min_length=1, description="degrees")
    shifts: list[Annotated[float, Field(gt=0, le=14)]] = Field(min_length=1, description="pixels, to the right")
    scales: list[Annotated[float, Field(ge=0.25, le=4)]] = Field(min_length=1, description="factors of all lengths")
    shears: list[Annotated[float, Field(gt=0, le=1)]] = Field(min_length=1, description="shares of y that x moves by")
    penalties: list[Annotated[float, Field(gt=0, le=1e12)]] = Field(
        min_length=1,
        description="of linear maps, as shares of the largest eigenvalue of the features' second moments; chosen on a "
        "quarter of the training images",
    )
    resamples: int = Field(ge=2, le=100_000, description="bootstrap samples of the test images for standard errors")
    seed: Seed = Field(description="seed of the untrained network and of the bootstrap")
