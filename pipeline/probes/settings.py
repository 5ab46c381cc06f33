"""Settings of probes and of the sweep over rotations."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.settings import Angles, Name, Section, Seed, check_once


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
