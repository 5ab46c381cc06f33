"""Compares generalisation to novel viewpoints at equal errors on familiar ones (document 004, section 5.1, Table 2).

Two networks are trained on images of familiar viewpoints only. A network that is better on all viewpoints would also
have a lower error on novel ones, even if it generalised no better. So the errors on familiar viewpoints are matched:

1. Errors are averaged over the last `LATE` epochs. (The minimum over epochs would be too low, as errors are noisy.)
   The network with the larger mean on familiar test images is the worse one. Its means enter the comparison.
2. The better network (in the document, the capsules) enters with its errors at the epoch where its error on familiar
   test images first falls to the worse network's mean. Errors are interpolated linearly between epochs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.data.datasets import Dataset, Labelled
from pipeline.data.viewpoints import is_familiar
from pipeline.learning.settings import RunSettings
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, spread

Axis = Literal["azimuth", "elevation"]
NETWORKS = ("capsules", "cnn")
LATE = 10
"""Number of last epochs over which a network's errors are averaged."""
COLUMNS = ["familiar", "novel", "epoch"]
AnyRun = TypeVar("AnyRun", bound=RunSettings)


def viewed(run: AnyRun, dataset: str, epochs: int, replicas: int) -> AnyRun:
    """A run with the study's data, epochs and replicas. It never stops early: the epoch to compare is chosen later."""
    longer = run.with_epochs(epochs)
    training = longer.training.model_copy(update={"patience": epochs})
    return longer.model_copy(update={"dataset": dataset, "replicas": replicas, "training": training})


def familiar_views(dataset: Dataset, axis: Axis) -> tuple[Dataset, dict[str, Labelled]]:
    """The data set with training and validation images of familiar viewpoints only, and a dictionary of test images and
    their classes, with the keys `familiar` and `novel`. `axis` is the angle that tells familiar from novel viewpoints.

    Raises `UserError` if the viewpoint of an image is unknown, or neither familiar nor novel.
    """
    degrees = dataset.factors[axis]
    familiar = {part: is_familiar(degrees[chosen], axis) for part, chosen in dataset.split.items()}
    kept = {part: dataset.split[part][familiar[part]] for part in ("train", "validation")}
    (images, labels), mask = dataset.part("test"), familiar["test"]
    watched = {"familiar": (images[mask], labels[mask]), "novel": (images[~mask], labels[~mask])}
    return replace(dataset, split=dataset.split | kept), watched


def errors(history: pd.DataFrame) -> pd.DataFrame:
    """Test errors on `familiar` and `novel` viewpoints: a row for each replica and epoch of a training's history."""
    found = {name: 1 - history[f"{name}_accuracy"] for name in ("familiar", "novel")}
    return history[["replica", "epoch"]].assign(**found)


def match(curves: pd.DataFrame) -> pd.DataFrame:
    """Compare two networks at equal errors on familiar viewpoints, by the two steps at the top of this module. Returns
    two rows per replica and network, with the columns replica, network, kind and `COLUMNS`: the compared errors (kind
    `matched`), and means over the last `LATE` epochs (`late`). If the better network's first error on familiar
    viewpoints is at most the worse network's mean, the better network's errors of epoch 1 are compared.

    Args:
        curves: `errors` of both networks, with a column network.
    """
    rows = []
    for replica, of_replica in curves.sort_values("epoch").groupby("replica"):
        own = {name: table[COLUMNS].to_numpy() for name, table in of_replica.groupby("network")}
        late = {name: table[-LATE:].mean(0) for name, table in own.items()}
        worse = max(late, key=lambda name: late[name][0])
        for name, table in own.items():
            matched = late[name] if name == worse else _first_at(table, late[worse][0])
            rows += [(replica, name, "matched", *matched), (replica, name, "late", *late[name])]
    return pd.DataFrame(rows, columns=["replica", "network", "kind", *COLUMNS])


def _first_at(table: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """The row (familiar, novel, epoch) where `familiar` first falls to `level`, interpolated in `table [epochs, 3]`."""
    level = max(level, table[:, 0].min())  # rounding may put the mean of equal errors slightly below these errors
    first = int(np.flatnonzero(table[:, 0] <= level)[0])
    if first == 0:
        return table[0]
    before, after = table[first - 1], table[first]
    return before + (before[0] - level) / (before[0] - after[0]) * (after - before)


def outcome(capsules: pd.DataFrame, cnn: pd.DataFrame, images: Mapping[str, int]) -> Outcome:
    """Compare two networks. The table has both networks' errors after every epoch. `matched` and `late` have the values
    of `match`. `novel_ratio` is the capsules' matched error on novel viewpoints divided by the convolutional network's,
    computed for each replica.

    Args:
        capsules, cnn: each network's errors, as `errors` returns them, of equally many replicas.
        images: numbers of test images by kind of viewpoint, `familiar` and `novel`.
    """
    curves = pd.concat([capsules.assign(network="capsules"), cnn.assign(network="cnn")], ignore_index=True)
    found = match(curves)
    novel = found[found["kind"] == "matched"].pivot_table("novel", "replica", "network")
    values = found.melt(["replica", "network", "kind"], COLUMNS, "measure")
    numbers: dict[str, Any] = nest(values, ["kind", "network", "measure"], "value")
    numbers |= {"novel_ratio": spread(novel["capsules"] / novel["cnn"]), "images": dict(images)}
    headline = tuple(f"matched.{network}.{views}" for network in NETWORKS for views in ("familiar", "novel"))
    return Outcome("viewpoint", curves, numbers, headline)
