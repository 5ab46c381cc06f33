"""The context, a study's only argument. It has settings, opens data sets and trained models, and trains models.

The context records which data sets and trainings a study uses, for the provenance of the result.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pipeline.dependencies import Graph, Item
from pipeline.layout import dataset_path, model_folder

if TYPE_CHECKING:
    import torch

    from pipeline.data.datasets import Dataset
    from pipeline.learning.model import Model
    from pipeline.learning.runs import AnyModel, BuildModel
    from pipeline.learning.settings import RunSettings
    from pipeline.learning.train import Labelled, Parameters, Trained
    from pipeline.shared_params import SharedParams
    from pipeline.tracking import TrackedRun

_logger = logging.getLogger(__name__)

CODE_ROOT = Path(__file__).resolve().parents[1]
"""The folder that contains the package `pipeline`."""

Made = TypeVar("Made")


class Opened(NamedTuple):
    """A data set that an item opened or generated. `sha256` is the hash of its file; None if it was generated."""

    label: str
    sha256: str | None


@dataclass(kw_only=True)
class Context:
    """The inputs of one item of a stage (usually a study or a training), and what the item has used so far.

    Attributes:
        entry: the item in `dvc.yaml`.
        item, label: the item's name, such as `smallnorb`, and its name in DVC and in progress bars, such as
            `attack@smallnorb`.
        settings: the item's entry in `params.yaml`, or the section that all items share; None if there is neither.
        checkpoints: the folder of checkpoints of trainings. If DVC runs an experiment in a temporary copy of the
            repository, `root` is the copy, and the checkpoints are in the original repository.
        opened: data sets that were opened or generated, by name.
        seeds: seeds of the first run that was trained or loaded, one per replica.
        epochs: number of epochs of each training, averaged over its replicas.
        last_epoch: the last epoch of the longest training.
        parts: the context of each study, if the item is a set of short studies; else empty.
    """

    entry: Item
    item: str
    label: str
    settings: Any
    params: SharedParams
    build_model: BuildModel
    root: Path
    checkpoints: Path
    run: TrackedRun
    graph: Graph
    opened: dict[str, Opened] = field(default_factory=dict)
    settings_trained: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    last_epoch: int = 0
    parts: list[Context] = field(default_factory=list)
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def part(self, name: str, settings: Any) -> Context:
        """Make a context for one study of the set that this item runs, and add it to `parts`."""
        part = replace(self, item=name, label=f"{self.label}, {name}", settings=settings, opened={}, parts=[])
        self.parts.append(part)
        return part

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The result of `make`, which is called only once for each `key`. All studies of a set share the result."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def training_code(self, variant: str) -> str:
        """A hash of the code that trains the models of a system (`variant`)."""
        from pipeline.learning.checkpoints import code_fingerprint

        return code_fingerprint(CODE_ROOT, self.graph.training_code(variant))

    def own_code(self, folder: str, *files: str) -> str:
        """A hash of the code that the item depends on. Of the files in `folder`, only `files` are included."""
        from pipeline.learning.checkpoints import code_fingerprint

        others = (place for place in self.entry.code if place != folder and not place.startswith(f"{folder}/"))
        return code_fingerprint(CODE_ROOT, [*others, *(f"{folder}/{file}" for file in files)])

    @cached_property
    def device(self) -> torch.device:
        """The device that the parameters name. Raises `UserError` if it is not available."""
        from pipeline.compute import choose_device

        return choose_device(self.params.device)

    def dataset(self, name: str) -> Dataset:
        """Load a data set. Raises `UserError` if its file is missing or damaged, or if it is too large for memory."""
        from pipeline.data.datasets import load_dataset, pixel_bytes
        from pipeline.files import sha256
        from pipeline.memory import COPIES, check_fits

        def read() -> tuple[Dataset, Opened]:
            path = dataset_path(self.root, name)
            needed, what = COPIES * pixel_bytes(path), f"{self.label}: the images of {name}"
            check_fits(needed, what, "Use fewer or smaller images.")
            dataset = load_dataset(path)
            return dataset, Opened(dataset.label, sha256(path))

        dataset, self.opened[name] = self.once(("dataset", name), read)
        return dataset

    def evaluated(self, name: str) -> Dataset:
        """Load a data set for evaluation, as `dataset` does, and log it in the tracked run."""
        dataset = self.dataset(name)
        self.run.log_dataset(name, dataset.label, self.sha256(name))
        return dataset

    def sha256(self, dataset: str) -> str:
        """The SHA-256 of the file of an opened data set."""
        return str(self.opened[dataset].sha256)

    def generates(self, what: str) -> None:
        """Record that the study generates its data. `what` is the label of the data."""
        self.opened[what] = Opened(what, None)

    def models(self, run: str, kind: type[AnyModel], replicas: int | None = None) -> list[AnyModel]:
        """Load the models of a trained run, all of class `kind`: one per replica, or only the first `replicas`.

        Raises `UserError` if the weights are missing, damaged, or belong to another run or model.
        """
        from pipeline.learning.runs import load_run, of_kind

        settings = self.params.runs[run]
        size = self.dataset(settings.dataset).images.shape[-1]
        loaded = load_run(self.build_model, model_folder(self.root, run), run, settings, size, self.device)
        self.seeds = self.seeds or settings.seeds[:replicas]
        return of_kind(kind, loaded)[:replicas]

    def train(
        self,
        name: str | None,
        run: RunSettings,
        dataset: Dataset | None = None,
        *,
        key: str = "",
        start: Sequence[Parameters] | None = None,
        frozen: Collection[str] = (),
        watched: Mapping[str, Labelled] | None = None,
    ) -> tuple[Trained, list[Model]]:
        """Train all replicas of a run, continuing from a checkpoint if the same training was interrupted.

        Args:
            name: name of the training in the study, and prefix of the names of its metrics; None if the item has no
                other training.
            dataset: training data; by default, the run's data set. A checkpoint made with other images is not used.
            key: key of the training's settings in the result; by default, `name`. If both are missing, the settings are
                not recorded. This is so in the stage `train`, whose result has the run's settings anyway.
            start, frozen, watched: as for `train_run`. Its docstring also lists the errors that are raised.

        Returns:
            The result of the training, and the trained models, one per replica.
        """
        from pipeline.learning.runs import Setup, train_run
        from pipeline.results.findings import stalled

        own = self.dataset(run.dataset)
        parts = [dataset.part(each) for each in dataset.split] if dataset else []
        seen = [array.tobytes() for labelled in (*parts, *(watched or {}).values()) for array in labelled]
        digest = hashlib.sha256(b"".join(seen)).hexdigest() if seen else ""
        data = f"{self.sha256(run.dataset)} {digest}".strip()
        part = name or ""
        title = f"{self.label}, {part}" if part else self.label
        self.run.log_dataset(run.dataset, (dataset or own).label, self.sha256(run.dataset))
        setup = Setup(self.build_model, self.device, self.checkpoints, self.training_code)
        trained, models = train_run(setup, run, dataset or own, data, self.run, title, start, frozen, watched, part)
        if words := stalled(trained.history, run):
            _logger.warning("warning: %s: %s", title, words)
            self.run.log_tags({f"{part}/warning" if part else "warning": words})
        if key := key or part:
            self.settings_trained[key] = run.model_dump(mode="json")
        self.seeds = self.seeds or run.seeds
        last_epochs = trained.history.groupby("replica")["epoch"].max()
        self.epochs.append(float(last_epochs.mean()))
        self.last_epoch = max(self.last_epoch, int(last_epochs.max()))
        return trained, models

    @property
    def data(self) -> str | None:
        """The labels of all data opened or generated so far, separated by commas; None if there are none."""
        return ", ".join(dict.fromkeys(each.label for each in self._all_opened())) or None

    def _all_opened(self) -> list[Opened]:
        return [each for context in (self, *self.parts) for each in context.opened.values()]

    def provenance(self) -> dict[str, Any]:
        """The result's provenance: data, first data set's hash, seeds, mean number of epochs, settings of trainings."""
        opened = self._all_opened()
        return {
            "dataset": self.data,
            "data_sha256": opened[0].sha256 if opened else None,
            "seeds": self.seeds,
            "epochs": sum(self.epochs) / len(self.epochs) if self.epochs else None,
            "trained": self.settings_trained,
        }
