"""Settings of the engines of test-time inference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline.settings import Section


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
