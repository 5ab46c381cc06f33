"""Reads and checks the result files of one profile.

If a file is missing, its item was not executed. Functions then return `None` or raise `NotMeasuredError`. If a file is
corrupt or has an unexpected form, they raise `ResultError`. They never replace a number by a guess.

An item of a stage such as `regression` is one study. An item of `regression_sets` is a set of studies (`studies_of`).
"""

import io
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from pipeline.errors import UserError
from pipeline.results.measured import Measured
from pipeline.results.outcome import RECORD
from pipeline.results.provenance import Record
from pipeline.results.settings import EvidenceParams


class Recorded(dict[str, Any]):
    """Nested settings recorded in a result. They are read by key or attribute (`settings.runs["x"].training.epochs`).

    They are not checked against the typed form of `params.yaml`, so old results stay readable when that form changes.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(
            {key: Recorded(value) if isinstance(value, Mapping) else value for key, value in values.items()}
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this result has no setting '{name}'") from None


class ResultError(UserError):
    """A result file is corrupt or has an unexpected form. The message names the file, the problem and a remedy."""

    @classmethod
    def at(cls, path: Path, problem: str) -> Self:
        """An error about a record, table or arrays at `path`. The message is `path`, `problem` and a remedy."""
        place = path.parent if path.suffix == ".npz" else path.with_suffix("")
        again = f"make it again with `dvc repro -f -s {place.parent.name}@{place.name}`"
        return cls(f"{path} {problem}. Get it back with `git checkout` or `dvc pull`, or {again}.")


UNNAMED = "`evidence` in params.yaml names nothing that answers it"


class NotMeasuredError(Exception):
    """A result or a number that a claim needs is missing. The verdict on the claim is then "not run", and the message
    is its reason.
    """


def needed_name(item: str | None) -> str:
    """Return `item`, a name from `evidence`. Raises `NotMeasuredError` if it is None."""
    if item is None:
        raise NotMeasuredError(UNNAMED)
    return item


@dataclass(frozen=True)
class Numbers:
    """The record of one item, from the file `results/<stage>/<item>.json`."""

    path: Path
    values: dict[str, Any]

    def at(self, *keys: str) -> Any:
        """The value under nested `keys`, or None if one of them is missing."""
        value: Any = self.values
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return value

    def names(self, *keys: str) -> list[str]:
        """The keys of the dict under nested `keys`; empty if the dict is missing."""
        value = self.at(*keys)
        return list(value) if isinstance(value, dict) else []

    def measured(self, *keys: str) -> Measured | None:
        """The number under nested `keys`; None if missing. Raises `ResultError` if it has no mean, no sd or no n."""
        value = self.at(*keys)
        if value is None:
            return None
        try:
            return Measured(float(value["mean"]), float(value["sd"]), int(value["n"]))
        except (TypeError, KeyError, ValueError):
            problem = f"should hold mean, sd and n in {'.'.join(keys)}, found {value!r}"
            raise ResultError.at(self.path, problem) from None

    def needed(self, *keys: str) -> Measured:
        """The same as `measured`, but raises `NotMeasuredError` if the number is missing."""
        if (found := self.measured(*keys)) is None:
            raise NotMeasuredError(f"{self.path.parent.name}/{self.path.stem} has no {'.'.join(keys)}")
        return found

    def number(self, *keys: str) -> float | None:
        """The plain number under `keys`, or None if it is missing."""
        value = self.at(*keys)
        return None if value is None else float(value)

    def part(self, *keys: str) -> "Numbers":
        """The numbers in the dict under nested `keys`, with the provenance of the whole result."""
        return Numbers(self.path, {**self.at(*keys), "provenance": self.records})

    def about(self, label: str) -> "Numbers":
        """A copy of these numbers whose last provenance record has `label` as the data set."""
        *earlier, last = self.records
        return Numbers(self.path, {**self.values, "provenance": [*earlier, {**last, "dataset": label}]})

    @property
    def settings(self) -> Recorded:
        """The parameters that made this result, nested as in `params.yaml`. Raises `ResultError` if none are there."""
        settings = self.records[-1].get("settings")
        if not isinstance(settings, dict):
            raise ResultError.at(self.path, "has a provenance without settings")
        return Recorded(settings)

    @property
    def trained(self) -> Recorded:
        """Settings of the runs that the item itself trained; empty if none. Keys are those given to `Context.train`."""
        return Recorded(self.records[-1].get("trained") or {})

    def run(self, name: str) -> Recorded:
        """The recorded settings of the run called `name`. Raises `ResultError` if this result has none."""
        return self._setting("runs", name)

    def dataset_of(self, run: str) -> Recorded:
        """The recorded settings of the data set of `run`. Raises `ResultError` if this result has none."""
        return self._setting("datasets", self.run(run).dataset)

    def _setting(self, section: str, name: str) -> Recorded:
        setting: Recorded | None = self.settings.get(section, {}).get(name)
        if setting is None:
            raise ResultError.at(self.path, f"has settings without {section}.{name}")
        return setting

    @property
    def draft(self) -> bool:
        """Whether the result was made from uncommitted code or settings."""
        return bool(self.records[-1].get("dirty"))

    @property
    def records(self) -> list[Record]:
        """The provenance records. The last one is that of the item itself. Raises `ResultError` if there is none."""
        records = self.values.get("provenance")
        if not isinstance(records, list) or not records or not all(isinstance(each, dict) for each in records):
            raise ResultError.at(self.path, "has no provenance (a list of records)")
        return records


@dataclass(frozen=True)
class Results:
    """The results of one profile. Methods that read a corrupt file raise `ResultError`.

    Attributes:
        records: the folder with `<stage>/<item>.json` and `.csv`.
        arrays: the folder with `<stage>/<item>/<name>.npz`.
        drafts: whether the method `numbers` returns drafts, which are results made from uncommitted changes.
        evidence: which items answer which claims of the documents.
        missing: tables and arrays that were asked for but have no file, as texts such as "routing/toys (its table)".
    """

    records: Path
    arrays: Path
    drafts: bool = True
    evidence: EvidenceParams = field(default_factory=EvidenceParams)
    missing: list[str] = field(default_factory=list)

    def miss(self, item: str) -> None:
        """Add `item` to the list `missing`, if it is not there yet."""
        if item not in self.missing:
            self.missing.append(item)

    def executed(self, stage: str) -> Iterator[tuple[str, Numbers]]:
        """Yield (item, numbers) for the items of a stage, sorted by `natural`. Items without numbers are left out."""
        for item in sorted((path.stem for path in (self.records / stage).glob("*.json")), key=natural):
            if numbers := self.numbers(stage, item):
                yield item, numbers

    def answering(self, stage: str, item: str | None) -> tuple[str, Numbers]:
        """Return `item`, a name from `evidence`, and its numbers. Raises `NotMeasuredError` if either is None."""
        item = needed_name(item)
        if not (numbers := self.numbers(stage, item)):
            raise NotMeasuredError(f"{stage}/{item} has no result")
        return item, numbers

    def numbers(self, stage: str, item: str) -> Numbers | None:
        """The numbers of an item. None if the item has no result, or if its result is a draft and `drafts` is False."""
        path = self.records / stage / f"{item}.json"
        if not path.exists():
            return None
        with _reading(path):
            values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
            records = values.get(RECORD) if isinstance(values, dict) else None
            if not isinstance(records, list) or [type(each) for each in records] != [dict]:
                raise ValueError(f"it should hold one '{RECORD}', a JSON object in a list")
        numbers = Numbers(path, records[0])
        if (whole := numbers.number("seconds")) and numbers.records[-1].get("seconds", whole) < whole:
            numbers.records[-1]["seconds"] = whole  # provenance has only the time after a training's last interruption
        return None if not self.drafts and numbers.draft else numbers

    def table(self, stage: str, item: str, columns: Iterable[str], study: str | None = None) -> pd.DataFrame | None:
        """The table of an item. If it has no file, returns None and notes the item in `missing`. Raises `ResultError`
        if the table has no rows or lacks a column.

        Args:
            study: if the item is a set of studies, the study whose rows are returned.
        """
        path, columns = self.records / stage / f"{item}.csv", list(columns)
        if not path.exists():
            self.miss(f"{stage}/{item} (its table)")
            return None
        with _reading(path):
            table = pd.read_csv(path) if study is None else _rows_of(path, study, columns)
        _require(path, "column", columns, table.columns)
        if table.empty:
            raise ResultError.at(path, "has no rows")
        return table

    def examples(
        self, stage: str, item: str, names: Sequence[str], study: str | None = None
    ) -> dict[str, np.ndarray] | None:
        """The arrays of `<stage>/<item>/examples.npz`. If there are none, returns None and notes the item in `missing`.
        Raises `ResultError` if the file lacks one of `names`.

        Args:
            study: if the item is a set of studies, the study whose arrays are returned.
        """
        path, prefix = self.arrays / stage / item / "examples.npz", "" if study is None else f"{study}/"
        if path.exists():
            # The file is opened here, because numpy does not close a file that turns out not to be an archive.
            with _reading(path), path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                found = {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
            if found or study is None:
                _require(path, "array", names, found)
                return found
        self.miss(f"{stage}/{item}{f' ({study})' if study else ''} (its examples)")
        return None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A context manager that turns any error into a `ResultError` about the file at `path`."""
    try:
        yield
    except Exception as error:  # json, pandas, zipfile and numpy raise many kinds of errors for damaged files
        raise ResultError.at(path, f"is corrupt: {error or type(error).__name__}") from None


def _require(path: Path, what: str, wanted: Iterable[str], found: Container[str]) -> None:
    """Raise `ResultError` if `found` lacks some of `wanted`, columns or arrays of the file at `path`."""
    if missing := [name for name in wanted if name not in found]:
        raise ResultError.at(path, f"lacks the {what}{'s' * (len(missing) > 1)} {', '.join(missing)}")


def with_training(results: Results, numbers: Numbers, *runs: str) -> list[Record]:
    """Provenance records: first those of the trainings of `runs`, then those of `numbers`, which is based on them.

    Trainings that `training_behind` does not find are left out. Drafts are included even if `results.drafts` is False,
    because their records show that the result rests on a draft.
    """
    everything = replace(results, drafts=True)
    found = (training_behind(everything, numbers, run) for run in runs)
    return [*(record for trained in found if trained for record in trained.records), *numbers.records]


def training_behind(results: Results, numbers: Numbers, run: str) -> Numbers | None:
    """The numbers from the training of `run`, on which the result `numbers` is based. None if the training has no
    result, or if the two results were made with different settings of the run or of its data set.
    """
    trained = results.numbers("train", run)
    return trained if trained and _training_of(trained, run) == _training_of(numbers, run) else None


def _training_of(numbers: Numbers, run: str) -> tuple[dict[str, Any], Recorded]:
    """Settings of a run and of its data set. A `patience` above `epochs` has no effect, and is replaced by `epochs`."""
    settings, dataset = numbers.run(run), numbers.dataset_of(run)
    training = settings.training
    return {**settings, "training": {**training, "patience": min(training.patience, training.epochs)}}, dataset


def _rows_of(path: Path, study: str, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of one study in the table of a set. A column that is empty in these rows is left out, unless it is in
    `columns`. Types are inferred from these rows only, because a column of integers may hold text in another study.
    """
    whole = pd.read_csv(path, dtype=str, keep_default_na=False)
    if "study" not in whole:
        raise ValueError("it has no column 'study'")
    rows = whole[whole["study"] == study].drop(columns="study")
    own = (rows != "").any() | rows.columns.isin(columns)
    return pd.read_csv(io.StringIO(rows.loc[:, own].to_csv(index=False)))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it contains {name}")


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key for names. It compares groups of digits as numbers, so that "x45" comes before "x180"."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


@dataclass(frozen=True)
class Study:
    """A study that was executed.

    Attributes:
        stage, item: the stage and the item whose result has the study.
        part: name of the study if the item is a set of studies; None if the item is the study itself.
        numbers: the study's numbers, with the provenance of the item.
        settings: the study's settings, as the result recorded them.
    """

    results: Results
    stage: str
    item: str
    part: str | None
    numbers: Numbers
    settings: Recorded

    @property
    def name(self) -> str:
        return self.part or self.item

    @property
    def kind(self) -> str:
        """The kind of study, such as "grid"."""
        return str(self.settings.study)

    def table(self, columns: Sequence[str]) -> pd.DataFrame | None:
        """The study's rows of the item's table. See `Results.table`."""
        return self.results.table(self.stage, self.item, columns, self.part)

    def examples(self) -> dict[str, np.ndarray] | None:
        """The study's arrays. See `Results.examples`."""
        return self.results.examples(self.stage, self.item, (), self.part)


def studies_of(results: Results, stage: str) -> Iterator[Study]:
    """Yield the executed studies of a stage, then those in the sets of `<stage>_sets`. Items are in the order of
    `natural`. Within a set, studies keep their order. Raises `ResultError` if a result is corrupt.
    """
    for item, numbers in results.executed(stage):
        yield Study(results, stage, item, None, numbers, numbers.settings[stage][item])
    sets = f"{stage}_sets"
    for item, numbers in results.executed(sets):
        settings = numbers.settings[sets][item].studies
        for name in numbers.names("studies"):
            own = numbers.part("studies", name)
            label = own.at("dataset")  # only recorded if the data sets of the studies differ
            yield Study(results, sets, item, name, own.about(label) if label else own, settings[name])


def study_of(results: Results, stage: str, name: str | None) -> Study:
    """The first study called `name`, in a set or not. `name` comes from `evidence`. Raises `NotMeasuredError` if it is
    None or has no result, and `ResultError` if a result is corrupt.
    """
    name = needed_name(name)
    for study in studies_of(results, stage):
        if study.name == name:
            return study
    raise NotMeasuredError(f"{stage}/{name} has no result")
