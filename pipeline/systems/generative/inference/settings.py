"""Settings of the engines of test-time inference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline.settings import Section


class _Engine(Section):
    steps: int = Field(ge=1, le=100_000, description="maximum number of gradient evaluations per image and start")
    tolerance: float = Field(
        gt=0,
        le=1e6,
        description="nats: an image has converged when its bound rises by less over some evaluations; a sampled bound "
        "is too noisy for this test and uses all steps",
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
        ge=0, le=100, description="restarts from a perturbation of the best result, which often find a better one"
    )


class LBFGSEngine(_Restarted):
    """Limited-memory BFGS on the analytic bound, with a line search for each image."""

    method: Literal["l-bfgs"]
    memory: int = Field(ge=1, le=100, description="number of past steps for estimating the curvature")


class GaussNewtonEngine(_Restarted):
    """Damped Gauss-Newton steps (Levenberg-Marquardt) on the analytic bound."""

    method: Literal["gauss-newton"]


Engine = Annotated[AdamEngine | LBFGSEngine | GaussNewtonEngine, Field(discriminator="method")]
