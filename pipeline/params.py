"""The typed form of `params.yaml`: every parameter with its unit and range.

Unknown keys are errors, types are not converted, and every error names the field and the allowed values. There are no
defaults here: all values are in `params.yaml`, so that `dvc params diff` shows everything that can change a result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, ValidationError, create_model, model_validator

from pipeline.data.settings import PUBLISHED, DatasetParams, OwnImagesParams, Published, SourceName
from pipeline.errors import ParamsError, UserError
from pipeline.files import read_yaml
from pipeline.learning.settings import CropParams
from pipeline.probes.settings import EvaluateParams
from pipeline.results.settings import EvidenceParams, roles_in
from pipeline.settings import Name, Section, check_once
from pipeline.studies import studies
from pipeline.systems import Run
from pipeline.systems.generative.settings import FailureParams


class Shared(Section):
    """What is in `params.yaml` beside the studies."""

    profile: Name = Field(description="the profile these values belong to; names the folder under reports/")
    publish: bool = Field(
        description="whether results are for publication: one made from uncommitted changes is then a draft, which "
        "answers no claim"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(description="auto: a GPU if there is one")
    sources: Annotated[list[SourceName], AfterValidator(check_once)] = Field(description="raw data to download")
    own_images: dict[Name, OwnImagesParams]
    datasets: dict[Name, DatasetParams]
    runs: dict[Name, Run]
    evaluate: EvaluateParams
    failures: FailureParams
    evidence: EvidenceParams = Field(description="which item answers which claims")

    @model_validator(mode="after")
    def _references(self) -> Self:
        self._check_sources()
        for name, run in self.runs.items():
            if run.dataset not in self.datasets:
                raise ValueError(f"runs.{name}.dataset: '{run.dataset}' is not one of {sorted(self.datasets)}")
            self.check_fits(f"runs.{name}", run, run.dataset)
            if run.held_out is not None:
                self.check_factor(f"runs.{name}.holdout.factor", run.held_out.factor, run.dataset)
        if self.evaluate.official_affnist:
            self._check_affnist()
        for kind, study in studies().items():
            for where, settings in self._entries(kind, hasattr(study, "SET")):
                if hasattr(study, "check"):
                    study.check(self, where, settings)
        self._check_evidence()
        return self

    def studies(self, kind: str) -> Any:
        """The settings of the studies of a kind by name, or those that all share."""
        return getattr(self, kind)

    def _entries(self, kind: str, in_sets: bool) -> Iterator[tuple[str, Any]]:
        """Every study of a kind with its place in `params.yaml`, also in sets. ValueError if two have the same name."""
        section = self.studies(kind)
        if isinstance(section, Section):
            yield kind, section
            return
        yield from ((f"{kind}.{name}", settings) for name, settings in section.items())
        seen = set(section)
        for name, entry in self.studies(f"{kind}_sets").items() if in_sets else ():
            for study, settings in entry.studies.items():
                if study in seen:
                    raise ValueError(f"{kind}_sets.{name}: there is another study called '{study}'")
                seen.add(study)
                yield f"{kind}_sets.{name}.studies.{study}", settings

    def _check_evidence(self) -> None:
        """Check that evidence has no unknown role, and names items that are there and of the right kind."""
        for role in roles_in(self.evidence):
            if role.kind is None:
                raise ValueError(f"{role.where}: unknown role")
            fitting = [name for name, kind in self._kinds(role.section).items() if role.kind in ("", kind)]
            if role.item not in fitting:
                raise ValueError(f"{role.where}: '{role.item}' is not one of {sorted(fitting)}")

    def _kinds(self, section: str) -> dict[str, str]:
        """The items of a section that evidence may name, each with its kind."""
        runs: dict[str, str] = {name: run.variant for name, run in self.runs.items()}
        if section == "runs":
            return runs
        if section == "sweep":
            return {name: runs[name] for name in self.studies("sweep").runs}
        if section == "networks":
            studies = self.studies("ablation").items()
            conditions = {f"{name}/{each}": study.run for name, study in studies for each in study.conditions}
            return runs | {name: runs[run] for name, run in conditions.items()}
        items = self.studies(section)
        if section == "viewpoint":
            return {name: study.axis for name, study in items.items()}
        if section in ("regression", "attention"):
            parts = [entry.studies for entry in self.studies(f"{section}_sets").values()]
            return {name: study.study for each in (items, *parts) for name, study in each.items()}
        return {name: runs[study.run] if hasattr(study, "run") else "" for name, study in items.items()}

    def _check_sources(self) -> None:
        """Check that data sets name sources that are there, fit their images onto the canvas, and take enough of each
        part for probes but no more than there is.
        """
        for name in self.own_images:
            if name in get_args(SourceName):
                raise ValueError(f"own_images.{name}: this is the name of a published source: choose another")
        for name, dataset in self.datasets.items():
            source, own = dataset.source, sorted(self.own_images)
            if source not in own and (source not in self.sources or source not in PUBLISHED):
                raise ValueError(f"datasets.{name}.source: '{source}' is not one of {[*self.sources, *own]}")
            known = self._known(source)
            for field, least, what in (
                ("canvas", known.side, f"side of the images of {source}"),
                ("train", known.classes, "number of classes"),
                ("test", known.classes, "number of classes"),
            ):
                if (found := getattr(dataset, field)) < least:
                    raise ValueError(f"datasets.{name}.{field}: must be at least {least}, the {what} (found {found})")
            dataset.check_counts(f"datasets.{name}", source, known.images, known.test)

    def images_of(self, dataset: str) -> Published:
        """What is known of the images of a data set: its side is the canvas."""
        settings = self.datasets[dataset]
        return replace(self._known(settings.source), side=settings.canvas)

    def _known(self, source: str) -> Published:
        """What is known of the images of a source."""
        return self.own_images[source].known if source in self.own_images else PUBLISHED[source]

    def check_fits(self, where: str, run: Run, dataset: str) -> None:
        """ValueError if a run's model cannot take the images of a data set."""
        images = self.images_of(dataset)
        try:
            run.model_copy(update={"dataset": dataset}).check_fits(images.channels, images.side, images.classes)
        except UserError as error:
            raise ValueError(f"{where}: {error}") from None

    def check_centre(self, where: str, run: Run) -> None:
        """ValueError if the middle of a run's central crop is not that of the image, about which images are moved."""
        side, augmentation = self.images_of(run.dataset).side, run.augmentation
        if isinstance(augmentation, CropParams) and (side - augmentation.crop) % 2:
            raise ValueError(f"{where}: the difference of the image's {side} and the crop's pixels must be even")

    def _check_affnist(self) -> None:
        """ValueError if affNIST's digits are not downloaded, or would test a model of other images."""
        from pipeline.data.affnist import AFFNIST_SIZE

        if "affnist" not in self.sources:
            raise ValueError(f"evaluate.official_affnist: 'affnist' is not one of sources {self.sources}")
        for name, run in self.runs.items():
            dataset = self.datasets[run.dataset]
            if dataset.source != "mnist" and dataset.canvas == AFFNIST_SIZE:
                raise ValueError(f"evaluate.official_affnist: it would test runs.{name}, of {dataset.source}, on MNIST")

    def check_factor(self, where: str, factor: str, dataset: str) -> None:
        """ValueError if a factor is not known of the images of a data set."""
        factors = self.images_of(dataset).factors
        if factors is not None and factor not in factors:
            known = ", ".join(factors) or "none"
            raise ValueError(f"{where}: the {factor} of images of {dataset} is not known (known: {known})")

    def run_of(self, where: str, name: str, *variants: str) -> Run:
        """The run that a study names, of one of `variants` if any are given. ValueError if there is none."""
        fitting = {key: run for key, run in self.runs.items() if not variants or run.variant in variants}
        if name not in fitting:
            raise ValueError(f"{where}: '{name}' is not one of {sorted(fitting)}")
        return fitting[name]

    def check_changes_of_model(
        self, where: str, name: str, variant: str, conditions: Mapping[str, Mapping[str, object]]
    ) -> None:
        """Check how a study's conditions change a run's model: ValueError if one is invalid or changes nothing."""
        run: Any = self.run_of(f"{where}.run", name, variant)
        for condition, changes in conditions.items():
            place = f"{where}.conditions.{condition}"
            with self.named(place):
                model = run.model.with_changes(changes)
            changed = run.model_copy(update={"model": model})
            self.check_effect(place, changed, changes)
            self.check_fits(place, changed, run.dataset)

    @staticmethod
    def check_effect(where: str, run: Run, changes: Collection[str]) -> None:
        """ValueError if one of these settings of a run's model, which a study changes, changes nothing."""
        for name, others in run.without_effect().items():
            if name in changes:
                raise ValueError(f"{where}.{name}: changes nothing without {others}")

    @staticmethod
    @contextmanager
    def named(where: str) -> Iterator[None]:
        """Inside, a ValidationError becomes a ValueError with the place `where` in `params.yaml`."""
        try:
            yield
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, (where, *wrong['loc'])))}: {_message(wrong)}") from None


def _sections() -> dict[str, Any]:
    """The sections of the studies: fields for pydantic by name."""
    fields: dict[str, Any] = {}
    for kind, study in studies().items():
        entry: Any = study.SETTINGS
        fields[kind] = (entry if hasattr(study, "ONE_SECTION") else dict[Name, entry], ...)
        if hasattr(study, "SET"):
            entry = study.SET
            fields[f"{kind}_sets"] = (dict[Name, entry], ...)
    return fields


if TYPE_CHECKING:
    Params = Shared
else:
    Params = create_model("Params", __base__=Shared, __doc__="Everything in `params.yaml`.", **_sections())


_TAGS = {"runs": 2, "optimise": 4, "regression": 2, "regression_sets": 4, "attention": 2, "attention_sets": 4}
"""By section: the index of the discriminator's value in pydantic's location of an error."""


_WORDS = {
    "extra_forbidden": "unknown parameter",
    "missing": "missing",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "must be a section"),
}
"""What is wrong, by pydantic's kinds of errors, where its own words are about Python."""


def _describe(error: Any) -> str:
    """One line for one pydantic error: the field as written in the file, what is wrong, what was found."""
    place = error["loc"]
    # pydantic's location contains the discriminator's value: runs, <name>, generative, training, ...
    tag = _TAGS.get(str(place[0]) if place else "", len(place))
    where = ".".join(map(str, (*place[:tag], *place[tag + 1 :])))
    return f"{where}: {_message(error)}" if where else _message(error)


def _message(error: Any) -> str:
    """What is wrong with a value, and the value found."""
    kind, found = error["type"], error["input"]
    words = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    shown = isinstance(found, int | float | str | bool) and kind not in _WORDS
    return _WORDS.get(kind, words) + (f" (found {found!r})" if shown else "")


def parse_params(values: Any, source: str = "params.yaml") -> Params:
    """Check the content of a params file and return it typed. Raises `ParamsError`, which names every wrong field."""
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        lines = "\n".join(f"  {_describe(each)}" for each in error.errors())
        raise ParamsError(f"{source} has bad parameters:\n{lines}") from None


def read_params(path: Path) -> Any:
    """The content of a params file, unchecked. Raises `ParamsError` if it cannot be read, or is empty."""
    try:
        values = read_yaml(path)
    except UserError as error:
        raise ParamsError(str(error)) from None
    if values is None:
        raise ParamsError(f"{path} is empty")
    return values


def load_params(path: Path) -> Params:
    """Read and check a params file. Raises `ParamsError` as `read_params` and `parse_params`."""
    return parse_params(read_params(path), path.name)
