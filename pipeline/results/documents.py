"""Describes in words how a result's settings differ from a document's settings, which are in `documents.yaml`.

Our settings are read from the result itself, because the profile may have changed since the result was made.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pipeline.results.findings import Kind, Remark
from pipeline.results.reading import Recorded

LABELS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "smallnorb": "smallNORB", "cifar10": "CIFAR-10"}
"""Names that the documents use for data sets. Keys are values of the setting `source` in `params.yaml`."""
COPIES = {
    "smallnorb48": "decoded from JPEG copies (the paper's: the published files)",
    "smallnorb48-posed": "the test part alone, split by instance, decoded from JPEG copies (the paper's: both parts)",
}
"""Sources that are copies of smallNORB, and how each copy differs from it."""
_FOR_VALIDATION = 0.02
"""We may train on fewer images than the document, by at most this share, without a remark. The other images may be kept
for validation."""


@cache
def documents() -> dict[str, dict[str, dict[str, Any]]]:
    """The documents' settings, in the shape of `params.yaml`. Nested keys are a system, then a network or study."""
    return yaml.safe_load(Path(__file__).with_name("documents.yaml").read_text(encoding="utf-8"))


def remarks(
    system: str,
    name: str,
    settings: Mapping[str, Any],
    dataset: Recorded,
    *,
    replicas: int | None = None,
    tested: int | None = None,
    share: float = 1,
) -> list[Remark]:
    """Remarks on how a result differs from its document: on data, then settings, then the number of seeds.

    A setting is compared only if the result has it, and the document or its published code gives it.

    Args:
        system, name: keys of the document's network or study in `documents.yaml`.
        settings: settings of our run or study.
        dataset: settings of the data set of our run or study.
        replicas, tested: our number of seeds and our number of test images. If one is None, it is not compared.
        share: share of the data set's training images that our run is trained on.
    """
    document = documents()[system][name]
    ours = Recorded({**settings, "dataset": dataset})
    if "training" in ours:
        ours["training"] = Recorded({**ours.training, **_steps(ours, share)})
    words, code = document.get("words", {}), document.get("published_code", {})
    of_budget = {"training.steps", *document.get("budget", ())}
    found = _of_data(document["dataset"], dataset, tested) if "dataset" in document else []
    told: list[Remark] = []
    for whose, theirs in (("the paper's", document), ("the published code's", code)):
        listed: dict[Kind, list[str]] = {}
        for place, mine, its in _differing(theirs, ours):
            kind: Kind = "budget" if place in of_budget else "setting"
            if place in words:
                told.append(Remark(words[place].format_map(ours), kind))
            elif place not in ("dataset.source", "dataset.train", "dataset.test", "replicas"):
                # Data and seeds are left out here, because they have remarks of their own.
                name_of = place.rpartition(".")[2].replace("_", " ")
                listed.setdefault(kind, []).append(f"{name_of} {setting_in_words(mine)} / {setting_in_words(its)}")
        found += [Remark(f"{', '.join(each)} (ours / {whose})", kind) for kind, each in listed.items()]
    found += told
    if replicas is not None and replicas < document.get("replicas", 0):
        found.append(Remark(f"{replicas} seed{'s' * (replicas != 1)} (paper: {document['replicas']})", "noise"))
    return found


def _of_data(theirs: Mapping[str, Any], ours: Recorded, tested: int | None) -> list[Remark]:
    """Remarks if our data set is a copy of the document's or another one, or if training or test images are fewer."""
    wanted = theirs["source"] if isinstance(theirs["source"], list) else [theirs["source"]]
    copied = ours.source in COPIES and "smallnorb" in wanted
    found = [Remark(COPIES[ours.source], "data")] if copied else []
    if not copied and ours.source not in wanted:
        found.append(Remark(f"not the paper's data ({' or '.join(LABELS[source] for source in wanted)})", "data"))
    elif ours.train < (known := theirs.get("train", 0)) * (1 - _FOR_VALIDATION):
        found.append(Remark(f"trained on {ours.train:,} images (paper: {known:,})", "budget"))
    if tested is not None and tested < (known := theirs.get("test", 0)):
        found.append(Remark(f"tested on {tested:,} images (paper: {known:,})", "noise"))
    return found


def _steps(ours: Recorded, share: float) -> dict[str, Any]:
    """Numbers of training steps: `steps` in all epochs, and `epoch_steps` in one epoch, as text. If the run has a
    `holdout`, both are upper bounds, because settings do not say how many images are held out.
    """
    dataset, holdout = ours.dataset, ours.get("holdout")
    images = (dataset.train + dataset.validation) * (1 - holdout.known_share) if holdout else dataset.train
    steps = int(images * share) // ours.training.batch_size
    return {"steps": ours.training.epochs * steps, "epoch_steps": f"{'less than ' if holdout else ''}{steps:,}"}


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted key, ours, theirs) for each setting that differs. `{least: n}` in `theirs` allows n or more."""
    for key, value in theirs.items():
        if key in ("words", "budget", "published_code") or key not in ours:  # these three are no settings
            continue
        mine = ours[key]
        if isinstance(value, Mapping) and "least" in value:
            if mine < value["least"]:
                yield f"{place}{key}", mine, value["least"]
        elif isinstance(value, Mapping):
            yield from _differing(value, mine, f"{place}{key}.")
        elif mine != value:
            yield f"{place}{key}", mine, value


def setting_in_words(value: object) -> str:
    """A setting as text. None, True and False become "none", "on" and "off"."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
