"""What a bundle holds: the commands of its stages, and the hashes of all that they read.

What a result depends on is what `dvc.yaml` says: the files of `deps` and the values of `params`. The rest of the
library travels, too, because stages import it to check, track and write; a change there makes no result stale.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.bundles.archive import BundleError, digest
from pipeline.layout import raw_folder

if TYPE_CHECKING:
    from pipeline.dependencies import Graph, Item

CODE = ("pipeline", "stages")
"""Folders of code, which travel whole."""
SETTINGS = ("dvc.yaml", "params.yaml")
"""Files that every stage reads. Of the parameters, a result depends only on those of its stage."""

TRAINING = "train"
"""The stage that makes trained runs."""

_NO_CODE = (".pyc", ".pyo", ".so")


@dataclass(frozen=True)
class Step:
    """One stage of a bundle.

    Attributes:
        stage: as DVC writes it: `train@vae-digits`.
        command: for a shell, in the folder of the bundle.
        outputs: files and folders that it makes.
        params: the values it depends on, by their dotted names.
    """

    stage: str
    command: str
    outputs: tuple[str, ...]
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Contents:
    """What a bundle holds, without the files themselves.

    Attributes:
        steps: the stages, in the order in which they run.
        commit, dirty: of the code, as `pipeline.commits.git_state`.
        code: SHA-256 of the code that the results depend on, by path.
        inputs: the same of data, weights and other files that they are made from, but for those that an earlier step
            makes.
        support: the same of the other files that the stages need.
        folders: inputs that are folders, which may be empty.
    """

    steps: tuple[Step, ...]
    commit: str
    dirty: bool
    code: Mapping[str, str]
    inputs: Mapping[str, str]
    support: Mapping[str, str]
    folders: tuple[str, ...]

    @property
    def stage(self) -> str:
        """The stage, or all of them with commas."""
        return ",".join(step.stage for step in self.steps)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages, as DVC writes them."""
        return tuple(step.stage for step in self.steps)

    @property
    def command(self) -> str:
        """The shell command that runs all steps."""
        return " && ".join(step.command for step in self.steps)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Files and folders that the steps make."""
        return tuple(output for step in self.steps for output in step.outputs)

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of every file, by path."""
        return {**self.code, **self.inputs, **self.support}

    @cached_property
    def key(self) -> str:
        """A hash of everything in here: bundles of the same key run the same code on the same inputs."""
        content = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(content.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """As JSON, which `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any, name: str) -> Contents:
        """What `to_json` wrote. Raises `BundleError`, which calls the file `name`."""
        try:
            steps = [
                Step(str(each["stage"]), str(each["command"]), _texts(each["outputs"]), dict(each["params"]))
                for each in value["steps"]
            ]
            return cls(
                steps=tuple(steps),
                commit=str(value["commit"]),
                dirty=value["dirty"] is True,
                code=_by_path(value["code"]),
                inputs=_by_path(value["inputs"]),
                support=_by_path(value["support"]),
                folders=_texts(value["folders"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError):
            raise BundleError(f"{name} is damaged: its manifest does not say what it holds") from None


_MISSING = "not there"


def _by_path(values: Any) -> dict[str, str]:
    return dict(zip(_texts([*values]), _texts([*values.values()]), strict=True))


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError("not texts")
    return tuple(values)


def stage_contents(root: Path, stage: str | Sequence[str], graph: Graph | None = None) -> Contents:
    """What a stage of a repository reads and makes now.

    Args:
        stage: as DVC writes it (`train@vae-digits`), or several in the order in which they are to run.
        graph: the dependencies of all stages, where they were read already.

    Raises:
        BundleError: an input is missing, or the stage cannot run elsewhere.
        GraphError: there is no such stage.
    """
    from pipeline.commits import git_state
    from pipeline.dependencies import Graph
    from pipeline.files import read_yaml

    graph = Graph.load(root) if graph is None else graph
    items = [item_of(graph, label) for label in ([stage] if isinstance(stage, str) else stage)]
    values = read_yaml(root / "params.yaml")
    _check_outputs(root, items)
    made: set[str] = set()
    code: dict[str, str] = {}
    inputs: dict[str, str] = {}
    folders: list[str] = []
    for item in items:
        trained = [dep for each in trainings(graph, item) if each != item for dep in each.deps if not is_code(dep)]
        official = [raw_folder(Path(), "affnist").as_posix()] if _tests_on_affnist(item, values) else []
        for dep in (*item.deps, *trained, *official):
            if any(dep == out or dep.startswith(f"{out}/") for out in made):
                continue
            found = dict(_hashes(root, dep, graph))
            if is_code(dep):
                code |= found
                continue
            inputs |= found
            if (root / dep).is_dir():
                folders.append(dep)
        made |= set(item.outs)
    support = {file: sha256 for place in (*CODE, *SETTINGS) for file, sha256 in _hashes(root, place, graph)}
    support = {file: sha256 for file, sha256 in support.items() if file not in code}
    steps = tuple(Step(each.label, each.command, each.outs, _params(each, values)) for each in items)
    return Contents(steps, *git_state(root), code, inputs, support, tuple(dict.fromkeys(folders)))


def _tests_on_affnist(item: Item, values: Mapping[str, Any]) -> bool:
    """Whether an evaluation reads affNIST's test set, which `dvc.yaml` cannot name: it depends on a parameter."""
    from pipeline.data.formats import AFFNIST_SIZE

    if item.stage != "evaluate" or not values["evaluate"]["official_affnist"]:
        return False
    dataset = values["runs"][item.label.partition("@")[2]]["dataset"]
    return bool(values["datasets"][dataset]["canvas"] == AFFNIST_SIZE)


def item_of(graph: Graph, label: str) -> Item:
    """An item by its label. Raises `GraphError`."""
    name, at, item = label.partition("@")
    return graph.item(name, item if at else None)


def is_code(place: str) -> bool:
    """Whether a file or folder is part of the code."""
    return place.split("/")[0] in CODE


def trainings(graph: Graph, item: Item) -> list[Item]:
    """The trainings whose weights an item makes or reads. With the weights, it reads their data and code, which
    `dvc.yaml` names for the training only: the folder of a trained run stands for what made it.
    """
    return [each for each in graph.upstream(item) if each.stage == TRAINING]


def differences(packed: Contents, now: Contents) -> list[str]:
    """What results of `packed` depend on that is different now, each in words with the path or name of it."""
    from pipeline.tracking.journal import flatten

    found = []
    for then, step in zip(packed.steps, now.steps, strict=True):
        if then.command != step.command:
            found.append(f"the command of {step.stage}")
        before, after = flatten(then.params), flatten(step.params)
        found += [
            f"{name} ({before.get(name, _MISSING)}, now {after.get(name, _MISSING)}) in params.yaml"
            for name in sorted({**before, **after})
            if before.get(name, _MISSING) != after.get(name, _MISSING)
        ]
    for what in ("code", "inputs"):
        before, after = getattr(packed, what), getattr(now, what)
        found += [file for file in sorted({**before, **after}) if before.get(file) != after.get(file)]
    return found


def _params(item: Item, values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in item.params:
        value: Any = values
        for key in name.split("."):
            value = value[key]
        found[name] = json.loads(json.dumps(value, default=str))
    return found


def _check_outputs(root: Path, items: Sequence[Item]) -> None:
    """Refuse stages that change what they made before: it would have to travel, too."""
    from pipeline.files import read_yaml

    stages = read_yaml(root / "dvc.yaml")["stages"]
    for item in items:
        entry = stages[item.stage]
        entry = entry.get("do", entry)
        for each in [out for key in ("outs", "metrics", "plots") for out in entry.get(key, [])]:
            if isinstance(each, Mapping) and any((options or {}).get("persist") for options in each.values()):
                raise BundleError(f"{item.label} keeps files of earlier runs (`persist` in dvc.yaml): run it here")


def _advice(graph: Graph, dep: str) -> str:
    """How to get an input that is missing."""
    for items in graph.items.values():
        for item in items.values():
            if any(dep == out or dep.startswith(f"{out}/") for out in item.outs):
                return f": run `dvc repro {item.label}` first, or add it to the bundle"
    return ""


def _hashes(root: Path, place: str, graph: Graph) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of a file, or of every file of a folder."""
    path = root / place
    if path.is_file():
        yield place, digest(path)[1]
        return
    if not path.is_dir():
        raise BundleError(f"{place} is missing{_advice(graph, place)}")
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise BundleError(f"{Path(folder) / name} is a link to a folder: bundles hold plain files")
        for name in sorted(names):
            if not (is_code(place) and name.endswith(_NO_CODE)):
                file = Path(folder) / name
                if not file.is_file():
                    raise BundleError(f"{file} is not a file: bundles hold plain files")
                yield file.relative_to(root).as_posix(), digest(file)[1]
