"""The items of all stages and their dependencies, read from `dvc.yaml`.

A template in `dvc.yaml` (`foreach` or `matrix`) gives several items, such as `train@<run>`. This module expands
templates itself, because importing DVC would take half a second in every stage. A test checks that DVC gives the same
items. An item's dependencies determine which settings are recorded with its result, and which code must be unchanged
for a checkpoint to be used again.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipeline.errors import ParamsError, UserError
from pipeline.files import read_yaml


@dataclass(frozen=True)
class Item:
    """One item of a stage. In its paths and parameters, each `${...}` is replaced by its value.

    Attributes:
        stage, name: the two parts of `<stage>@<name>`; `name` is None for a stage without a template.
        deps, outs: paths relative to the repository. `outs` includes metrics and plots.
        params: dotted names of parameters.
        axes: the item's value of each variable of a `matrix` template, such as `run`. Empty for other items.
    """

    stage: str
    name: str | None
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]
    axes: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The item's name in DVC, such as `train@capsules-digits`."""
        return self.stage if self.name is None else f"{self.stage}@{self.name}"

    @property
    def code(self) -> tuple[str, ...]:
        """The dependencies that are code of the library: files and folders in `pipeline/`."""
        return tuple(dep for dep in self.deps if dep.startswith("pipeline/"))


class Graph:
    """The items of all stages, from the section `stages` of `dvc.yaml` and the content of `params.yaml`. An item is
    `items[stage][name]`. Stages are in the order of `dvc.yaml`, the items of a template in the order of its values.
    """

    def __init__(self, stages: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._values = values
        self.items: dict[str, dict[str | None, Item]] = {
            stage: {item.name: item for item in self._expand(stage, entry)} for stage, entry in stages.items()
        }
        self._by_output = {out: item for items in self.items.values() for item in items.values() for out in item.outs}

    @classmethod
    def load(cls, root: Path, values: Mapping[str, Any] | None = None) -> Self:
        """Load a repository's graph. If given, `values` replace the content of `params.yaml`. Raises `UserError` if a
        file cannot be read.
        """
        values = read_yaml(root / "params.yaml") if values is None else values
        content = read_yaml(root / "dvc.yaml")
        if not isinstance(content, dict) or not isinstance(content.get("stages"), dict):
            raise UserError("dvc.yaml has no stages: restore the file with `git checkout`")
        return cls(content["stages"], values)

    def item(self, stage: str, name: str | None) -> Item:
        """The item `name` of `stage`. Raises `UserError` for an unknown stage and `ParamsError` for an unknown item."""
        if stage not in self.items:
            raise UserError(f"dvc.yaml has no stage {stage}: see `dvc stage list`")
        if name not in (items := self.items[stage]):
            raise ParamsError(f"{stage} has no '{name}'; params.yaml has: {', '.join(sorted(map(str, items)))}")
        return items[name]

    def settings(self, stage: str, name: str | None, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters in `values` that an item depends on, directly or through items whose outputs it reads. They
        are nested like `values`, and do not include `device`. The item's `axes`, if any, are under the key `item`.
        """
        item = self.item(stage, name)
        reached, waiting = {item.label: item}, [item]
        while waiting:
            for dep in waiting.pop().deps:
                new = {each.label: each for each in self._producers(dep) if each.label not in reached}
                reached |= new
                waiting += new.values()
        names = {param for each in reached.values() for param in each.params}
        part: dict[str, Any] = {"item": dict(item.axes)} if item.axes else {}
        for dotted in sorted(names - {"device"}):  # the device used is in the provenance
            *path, last = dotted.split(".")
            target, source = part, values
            for key in path:
                target, source = target.setdefault(key, {}), source[key]
            target[last] = source[last]
        return part

    def training_code(self, variant: str) -> tuple[str, ...]:
        """The files and folders in `pipeline/` on which the training of a run with this `variant` depends."""
        runs = self._values["runs"]
        return next(item.code for name, item in self.items["train"].items() if runs[name]["variant"] == variant)

    def _producers(self, dep: str) -> list[Item]:
        if dep in self._by_output:
            return [self._by_output[dep]]
        return [item for out, item in self._by_output.items() if out.startswith(f"{dep}/") or dep.startswith(f"{out}/")]

    def _expand(self, stage: str, entry: Mapping[str, Any]) -> Iterator[Item]:
        """Yield the items of a stage. `entry` is the stage's section in `dvc.yaml`."""
        if "foreach" in entry:
            values = self._value(entry["foreach"])
            keyed = isinstance(values, Mapping)
            for key in values:
                scope = {"key": key, "item": values[key]} if keyed else {"item": key}
                yield self._item(stage, str(key), entry["do"], scope)
        elif "matrix" in entry:
            axes = {axis: self._value(values) for axis, values in entry["matrix"].items()}
            for combination in itertools.product(*axes.values()):
                scope = {"item": dict(zip(axes, combination, strict=True))}
                yield self._item(stage, "-".join(map(str, combination)), entry, scope)
        else:
            yield self._item(stage, None, entry, {})

    def _item(self, stage: str, name: str | None, definition: Mapping[str, Any], scope: Mapping[str, Any]) -> Item:
        def paths(*keys: str) -> tuple[str, ...]:
            entries = [entry for key in keys for entry in definition.get(key, [])]
            named = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
            return tuple(
                re.sub(r"\$\{([^}]+)\}", lambda found: str(self._look_up(found[1], scope)), each) for each in named
            )

        axes = scope["item"] if "matrix" in definition else {}
        return Item(stage, name, paths("deps"), paths("outs", "metrics", "plots"), paths("params"), axes)

    def _value(self, entry: Any) -> Any:
        found = re.fullmatch(r"\$\{([^}]+)\}", entry) if isinstance(entry, str) else None
        return self._look_up(found[1], {}) if found else entry

    def _look_up(self, dotted: str, scope: Mapping[str, Any]) -> Any:
        value: Any = {**self._values, **scope}
        for key in dotted.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise UserError(f"dvc.yaml uses ${{{dotted}}}, which is not in params.yaml")
            value = value[key]
        return value
