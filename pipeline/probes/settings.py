"""Settings of probes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.settings import Angles, Section, Seed


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
