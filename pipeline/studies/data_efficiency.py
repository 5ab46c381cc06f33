"""Train on shares of the images, with as many steps as on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from pipeline.settings import Name, Section

if TYPE_CHECKING:
    from pipeline.params import Params
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context


LONGEST = 10_000
"""Epochs of a training, at most."""


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


SETTINGS = DataEfficiencyParams


def check(params: Params, where: str, study: DataEfficiencyParams) -> None:
    """ValueError if there is no such run."""
    params.run_of(f"{where}.run", study.run)


def measure(context: Context) -> Outcome:
    """Train and test the run of an entry of `data_efficiency` on each share of its images."""
    from pipeline.probes.data_efficiency import errors_of, outcome, share_of, with_share
    from pipeline.results.spread import stack_replicas

    settings: DataEfficiencyParams = context.settings
    unchanged = context.params.runs[settings.run]
    dataset = context.dataset(unchanged.dataset)
    tables, images = {}, {}
    for share in settings.shares:
        part, name = share_of(dataset, share), f"share={share:g}"
        images[share] = len(part.split["train"])
        run = with_share(unchanged, settings, images[share], len(dataset.split["train"]))
        models = context.train(name, run, part, name if share < 1 else "", key=f"{share:g}").models
        tables[share] = stack_replicas(
            [errors_of(model, run, part, context.params.evaluate, context.device) for model in models]
        )
    return outcome(tables, images)
