"""Compares generalisation to novel viewpoints at equal errors on familiar ones (document 004, section 5.1, Table 2).

Two networks are trained on images of familiar viewpoints only. A network that is better on all viewpoints would also
have a lower error on novel ones, even if it generalised no better. So test errors on familiar viewpoints are matched:

1. Errors are averaged over the last `LATE` epochs. (The minimum over epochs would be too low, as errors are noisy.)
   The network with the larger mean error on familiar viewpoints is called worse. Its mean errors are compared.
2. The other network is called better (in the document, the capsules). Its errors are taken at the epoch where its error
   on familiar viewpoints first falls to the worse network's mean. Between epochs, errors are interpolated linearly.
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
    """`run` with the study's data, epochs and replicas. It does not stop early: the compared epoch is chosen later."""
    longer = run.with_epochs(epochs)
    training = longer.training.model_copy(update={"patience": epochs})
    return longer.model_copy(update={"dataset": dataset, "replicas": replicas, "training": training})


def familiar_views(dataset: Dataset, axis: Axis) -> tuple[Dataset, dict[str, Labelled]]:
    """Restrict training and validation images to familiar viewpoints. Returns this data set, and a dictionary with the
    test images and their classes under the keys `familiar` and `novel`. `axis` is the angle that separates these two.

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
    """Compare two networks at equal errors on familiar viewpoints, as the module docstring describes. Returns a table
    with the columns replica, network, kind and `COLUMNS`. Per replica and network, the row of kind `matched` has the
    compared errors, and the row of kind `late` the means over the last `LATE` epochs. If the better network is at or
    below the worse network's mean already after epoch 1, its errors after epoch 1 are compared.

    Args:
        curves: the results of `errors` for both networks, joined, with a further column network.
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
    """Compare two networks. The table has both networks' errors after every epoch. `matched` and `late` are the numbers
    from `match`. `novel_ratio` is the capsules' matched error on novel viewpoints divided by that of the convolutional
    network, for each replica.

    Args:
        capsules, cnn: each network's errors, as `errors` returns them. Both networks have the same number of replicas.
        images: numbers of test images with `familiar` and with `novel` viewpoints.
    """
    curves = pd.concat([capsules.assign(network="capsules"), cnn.assign(network="cnn")], ignore_index=True)
    found = match(curves)
    novel = found[found["kind"] == "matched"].pivot_table("novel", "replica", "network")
    values = found.melt(["replica", "network", "kind"], COLUMNS, "measure")
    numbers: dict[str, Any] = nest(values, ["kind", "network", "measure"], "value")
    numbers |= {"novel_ratio": spread(novel["capsules"] / novel["cnn"]), "images": dict(images)}
    headline = tuple(f"matched.{network}.{views}" for network in NETWORKS for views in ("familiar", "novel"))
    return Outcome("viewpoint", curves, numbers, headline)
