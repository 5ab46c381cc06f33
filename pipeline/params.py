"""The typed form of `params.yaml`: every parameter with its unit and range.

Unknown keys are errors, types are not converted, and almost every error names the field and the allowed values. Almost
no setting has a default, so that `dvc params diff` shows everything that can change a result.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from pydantic import ValidationError, create_model, model_validator

from pipeline.data.settings import PUBLISHED, SourceName
from pipeline.errors import ParamsError, UserError
from pipeline.files import read_yaml
from pipeline.results.settings import roles_in
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams, message_of
from pipeline.studies import studies
from pipeline.systems import Run
from pipeline.systems.generative.settings import FailureParams


class CheckedParams(SharedParams):
    """The sections of `params.yaml` that belong to no study, and checks that all sections fit together."""

    runs: dict[Name, Run]
    failures: FailureParams

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

    def _entries(self, kind: str, in_sets: bool) -> Iterator[tuple[str, Any]]:
        """Yield (place, settings) of a study's entries and, if `in_sets`, of its sets. `ValueError` if names repeat."""
        section = self.section(kind)
        if isinstance(section, Section):
            yield kind, section
            return
        yield from ((f"{kind}.{name}", settings) for name, settings in section.items())
        seen = set(section)
        for name, entry in self.section(f"{kind}_sets").items() if in_sets else ():
            for study, settings in entry.studies.items():
                if study in seen:
                    raise ValueError(f"{kind}_sets.{name}: there is another study called '{study}'")
                seen.add(study)
                yield f"{kind}_sets.{name}.studies.{study}", settings

    def _check_evidence(self) -> None:
        """Raise `ValueError` if evidence has an unknown role, or an item that does not exist or has the wrong kind."""
        for role in roles_in(self.evidence):
            fitting = [name for name, kind in self._kinds(role.section).items() if role.kind in ("", kind)]
            if role.item not in fitting:
                raise ValueError(f"{role.where}: '{role.item}' is not one of {sorted(fitting)}")

    def _kinds(self, section: str) -> dict[str, str]:
        """The kind (`Role.kind`) of each item that roles of `section` may name, by the item's name."""
        runs: dict[str, str] = {name: run.variant for name, run in self.runs.items()}
        if section == "runs":
            return runs
        if section == "sweep":
            return {name: runs[name] for name in self.section("sweep").runs}
        if section == "networks":
            studies = self.section("ablation").items()
            conditions = {f"{name}/{each}": study.run for name, study in studies for each in study.conditions}
            return runs | {name: runs[run] for name, run in conditions.items()}
        items = self.section(section)
        if section == "viewpoint":
            return {name: study.axis for name, study in items.items()}
        if section in ("regression", "attention"):
            parts = [entry.studies for entry in self.section(f"{section}_sets").values()]
            return {name: study.study for each in (items, *parts) for name, study in each.items()}
        return {name: runs[study.run] if hasattr(study, "run") else "" for name, study in items.items()}

    def _check_sources(self) -> None:
        """Raise `ValueError` if own images have a published source's name, or if a data set has an unknown source, a
        canvas smaller than the images, more images than the source, or fewer training or test images than classes.
        """
        for name in self.own_images:
            if name in get_args(SourceName):
                raise ValueError(f"own_images.{name}: this is the name of a published source: choose another")
        for name, dataset in self.datasets.items():
            source = dataset.source
            allowed = [*(each for each in self.sources if each in PUBLISHED), *sorted(self.own_images)]
            if source not in allowed:
                raise ValueError(f"datasets.{name}.source: '{source}' is not one of {allowed}")
            known = self.known(source)
            for field, least, what in (
                ("canvas", known.side, f"side of the images of {source}"),
                ("train", known.classes, "number of classes"),
                ("test", known.classes, "number of classes"),
            ):
                if (found := getattr(dataset, field)) < least:
                    raise ValueError(f"datasets.{name}.{field}: must be at least {least}, the {what} (found {found})")
            dataset.check_counts(f"datasets.{name}", source, known.images, known.test)

    def _check_affnist(self) -> None:
        """Raise `ValueError` if affNIST is not among the sources, or would test a model not trained on MNIST."""
        from pipeline.data.affnist import AFFNIST_SIZE

        if "affnist" not in self.sources:
            raise ValueError("evaluate.official_affnist: add 'affnist' to `sources`, or set this to false")
        for name, run in self.runs.items():
            dataset = self.datasets[run.dataset]
            if dataset.source != "mnist" and dataset.canvas == AFFNIST_SIZE:
                problem = f"it would test runs.{name} ({dataset.source}) on affNIST"
                raise ValueError(f"evaluate.official_affnist: {problem}; set this to false, or take another canvas")


def _sections() -> dict[str, Any]:
    """The sections of all studies by name, as fields for `create_model`: pairs of a type and `...` (required)."""
    fields: dict[str, Any] = {}
    for kind, study in studies().items():
        entry: Any = study.SETTINGS
        fields[kind] = (entry if hasattr(study, "ONE_SECTION") else dict[Name, entry], ...)
        if hasattr(study, "SET"):
            entry = study.SET
            fields[f"{kind}_sets"] = (dict[Name, entry], ...)
    return fields


if TYPE_CHECKING:
    Params = CheckedParams
else:
    Params = create_model("Params", __base__=CheckedParams, __doc__="Everything in `params.yaml`.", **_sections())


_TAGS = {"runs": 2, "optimise": 4, "regression": 2, "regression_sets": 4, "attention": 2, "attention_sets": 4}
"""Index of the tag in an error's `loc`, by section. The tag is the value that selects the class of settings."""


def _describe(error: Any) -> str:
    """One line for one pydantic error: the field as in the file, the problem, and the value found."""
    place = error["loc"]
    # `loc` is, for example, (runs, <name>, generative, training, ...). The tag `generative` is not a key in the file.
    tag = _TAGS.get(str(place[0]) if place else "", len(place))
    where = ".".join(map(str, (*place[:tag], *place[tag + 1 :])))
    return f"{where}: {message_of(error)}" if where else message_of(error)


def parse_params(values: Any, source: str = "params.yaml") -> Params:
    """Check the content of a params file, and convert it to its typed form. Raises `ParamsError`, which names all wrong
    fields or, if there are none, one conflict between sections.
    """
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
    """Read and check a params file. Raises `ParamsError` as `read_params` and `parse_params` do."""
    return parse_params(read_params(path), path.name)
