"""The settings in `params.yaml` that all studies share, and checks of a study's settings against them."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from pipeline.data.settings import PUBLISHED, DatasetParams, OwnImagesParams, Published, SourceName
from pipeline.errors import UserError
from pipeline.learning.settings import RunSettings
from pipeline.probes.settings import EvaluateParams
from pipeline.results.settings import EvidenceParams
from pipeline.settings import Name, Section, check_once


class SharedParams(Section):
    """The sections of `params.yaml` that all studies share."""

    profile: Name = Field(description="name of the profile, and of its folder under reports/")
    publish: bool = Field(
        description="whether results are for publication. If so, a result made from uncommitted changes is a draft, "
        "which is no evidence for a claim"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(description="auto: a GPU if there is one, otherwise the CPU")
    sources: Annotated[list[SourceName], AfterValidator(check_once)] = Field(description="raw data to download or make")
    own_images: dict[Name, OwnImagesParams]
    datasets: dict[Name, DatasetParams]
    runs: dict[Name, RunSettings]
    evaluate: EvaluateParams
    evidence: EvidenceParams = Field(description="names of the items that answer claims")

    def section(self, name: str) -> Any:
        """A section, such as `ablation`: a dict of entries by name, or a `Section` of settings that all items share."""
        return getattr(self, name)

    def images_of(self, dataset: str) -> Published:
        """Known properties of the images of a data set. Their `side` is the data set's `canvas`, in pixels."""
        settings = self.datasets[dataset]
        return replace(self.known(settings.source), side=settings.canvas)

    def known(self, source: str) -> Published:
        """Known properties of the images of a source."""
        return self.own_images[source].known if source in self.own_images else PUBLISHED[source]

    def check_fits(self, where: str, run: RunSettings, dataset: str) -> None:
        """Raise `ValueError` if a run's model cannot take the images of a data set."""
        images = self.images_of(dataset)
        try:
            run.model_copy(update={"dataset": dataset}).check_fits(images.channels, images.side, images.classes)
        except UserError as error:
            raise ValueError(f"{where}: {error}") from None

    def check_factor(self, where: str, factor: str, dataset: str) -> None:
        """Raise `ValueError` if a data set lacks a factor of variation (unless only some images have known factors)."""
        factors = self.images_of(dataset).factors
        if factors is not None and factor not in factors:
            known = ", ".join(factors) or "none"
            raise ValueError(f"{where}: the {factor} of images of {dataset} is not known (known: {known})")

    def run_of(self, where: str, name: str, *variants: str) -> RunSettings:
        """The run `name`. Raises `ValueError` if there is none, or if its variant is not in `variants` (if given)."""
        fitting = {key: run for key, run in self.runs.items() if not variants or run.variant in variants}
        if name not in fitting:
            kind = f" with variant {' or '.join(variants)}" if variants else ""
            raise ValueError(f"{where}: '{name}' is not a run{kind} (known: {', '.join(sorted(fitting)) or 'none'})")
        return fitting[name]

    def check_changes_of_model(
        self, where: str, name: str, variant: str, conditions: Mapping[str, Mapping[str, object]]
    ) -> None:
        """Raise `ValueError` if there is no run `name` of this variant, or if a condition is wrong. A condition changes
        settings of the run's model. It is wrong if a change is invalid or without effect, or if the changed model does
        not fit the data.
        """
        run: Any = self.run_of(f"{where}.run", name, variant)
        for condition, changes in conditions.items():
            place = f"{where}.conditions.{condition}"
            with self.named(place):
                model = run.model.with_changes(changes)
            changed = run.model_copy(update={"model": model})
            self.check_effect(place, changed, changes)
            self.check_fits(place, changed, run.dataset)

    @staticmethod
    def check_effect(where: str, run: RunSettings, changes: Collection[str]) -> None:
        """Raise `ValueError` if the model of `run` ignores one of `changes`, names of settings that a study changes."""
        for name, others in run.without_effect().items():
            if name in changes:
                raise ValueError(f"{where}.{name}: has no effect without {others}")

    @staticmethod
    @contextmanager
    def named(where: str) -> Iterator[None]:
        """Inside the block, a ValidationError becomes a ValueError that names the place `where` in `params.yaml`."""
        try:
            yield
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, (where, *wrong['loc'])))}: {message_of(wrong)}") from None


_WORDS = {
    "extra_forbidden": "unknown parameter",
    "missing": "missing",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "must be a section"),
}
"""Messages for some types of pydantic's errors, because pydantic's own messages use terms of Python."""


def message_of(error: Any) -> str:
    """A pydantic error in words. Adds the wrong value if it is a number, string or bool and `_WORDS` is not used."""
    kind, found = error["type"], error["input"]
    words = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    shown = isinstance(found, int | float | str | bool) and kind not in _WORDS
    return _WORDS.get(kind, words) + (f" (found {found!r})" if shown else "")
