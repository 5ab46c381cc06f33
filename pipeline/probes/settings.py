"""Settings of probes, and of the study of equivariance."""

from typing import Annotated

from pydantic import Field

from pipeline.settings import Angles, Name, Section, Seed


class EvaluateParams(Section):
    """Settings of linear probes and their out-of-distribution tests (document 000, Table 1)."""

    angles: Angles = Field(description="degrees: each angle is a test on images rotated uniformly in [-angle, +angle]")
    affine_versions: int = Field(ge=1, le=32, description="number of random affine versions of each test image")
    official_affnist: bool = Field(description="also test models of 40x40 images on affNIST, which `sources` must list")
    probe_images: int = Field(
        ge=10, le=10_000_000, description="maximum number of training images (the first ones) that a probe is fitted to"
    )
    probe_strengths: list[Annotated[float, Field(gt=0, le=1e12)]] = Field(
        min_length=1, description="inverse regularisation strengths (C) to try; validation images select one"
    )
    seed: Seed = Field(description="seed of warps, posterior samples, k-means, and the noise in metrics on test images")


class EquivarianceParams(Section):
    """Equivariance and invariance of a run (document 003). A pair has two images, one step of the viewpoint apart."""

    run: Name = Field(description="a key of `runs`")
    images: int = Field(ge=8, le=10_000_000, description="maximum number of test images (the first ones), or of pairs")
    fit_images: int = Field(
        ge=8, le=10_000_000, description="maximum number of training images, or of pairs, that maps are fitted to"
    )
    derivative_images: int = Field(
        ge=8, le=10_000_000, description="for derivatives: maximum numbers of training and of test images (the first)"
    )
    rotations: list[Annotated[float, Field(gt=0, le=180)]] = Field(min_length=1, description="degrees, anticlockwise")
    shifts: list[Annotated[float, Field(gt=0, le=14)]] = Field(min_length=1, description="pixels to the right")
    scales: list[Annotated[float, Field(ge=0.25, le=4)]] = Field(min_length=1, description="factors on all lengths")
    shears: list[Annotated[float, Field(gt=0, le=1)]] = Field(min_length=1, description="multiples of y added to x")
    penalties: list[Annotated[float, Field(gt=0, le=1e12)]] = Field(
        min_length=1,
        description="penalties of linear maps to try, in units of the largest eigenvalue of the features' covariance; "
        "the last quarter of the images that maps are fitted to selects one",
    )
    resamples: int = Field(ge=2, le=100_000, description="bootstrap samples of the test images for standard errors")
    seed: Seed = Field(description="seed of the untrained network and of the bootstrap")
