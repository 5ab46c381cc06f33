"""Compares generalisation to novel viewpoints at equal errors on familiar ones (document 004, section 5.1, Table 2).

Two networks are trained on images of familiar viewpoints only. A network that is better on all viewpoints would seem
to generalise better. So the networks are compared at equal errors on familiar viewpoints:

1. Errors of the network that is worse on familiar viewpoints are means over its last epochs. The minimum of many noisy
   errors would be too low.
2. Errors of the better network (in the document the capsules) are those at the epoch where its error on familiar test
   images first falls to the mean of step 1, interpolated linearly between epochs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.data.datasets import Dataset
from pipeline.data.viewpoints import is_familiar
from pipeline.learning.settings import RunSettings
from pipeline.learning.train import Labelled
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, spread

Axis = Literal["azimuth", "elevation"]
NETWORKS = ("capsules", "cnn")
LATE = 10
"""Number of last epochs over which a network's errors are averaged."""
COLUMNS = ["familiar", "novel", "epoch"]
AnyRun = TypeVar("AnyRun", bound=RunSettings)


def viewed(run: AnyRun, dataset: str, epochs: int, replicas: int) -> AnyRun:
    """A run with the study's data, epochs and replicas. It has no early stopping, because the epochs at which two
    networks are compared are determined after training.
    """
    longer = run.with_epochs(epochs)
    training = longer.training.model_copy(update={"patience": epochs})
    return longer.model_copy(update={"dataset": dataset, "replicas": replicas, "training": training})


def familiar_views(dataset: Dataset, axis: Axis) -> tuple[Dataset, dict[str, Labelled]]:
    """The data set with training and validation images of familiar viewpoints only, and a dictionary of test images
    and their classes. Its keys are `familiar` and `novel`.

    Raises:
        UserError: the viewpoint of an image is unknown, or neither familiar nor novel.
    """
    familiar = {
        part: is_familiar({name: values[chosen] for name, values in dataset.factors.items()}, axis)
        for part, chosen in dataset.split.items()
    }
    kept = {part: dataset.split[part][familiar[part]] for part in ("train", "validation")}
    (images, labels), mask = dataset.part("test"), familiar["test"]
    watched = {"familiar": (images[mask], labels[mask]), "novel": (images[~mask], labels[~mask])}
    return replace(dataset, split=dataset.split | kept), watched


def errors(history: pd.DataFrame) -> pd.DataFrame:
    """Test errors on `familiar` and `novel` viewpoints: a row for each replica and epoch of a training's history."""
    found = {name: 1 - history[f"{name}_accuracy"] for name in ("familiar", "novel")}
    return history[["replica", "epoch"]].assign(**found)


def match(curves: pd.DataFrame) -> pd.DataFrame:
    """Compare networks where their errors on familiar viewpoints are equal. One row per replica and network, with the
    columns replica, network and `COLUMNS`. Values of the worse network are means over its last `LATE` epochs. Values of
    the better one are interpolated where its familiar error first falls to this mean (epoch 1 if it starts below).

    Args:
        curves: `errors` of both networks, with a column network. Replicas that only one network has are left out.
    """
    rows = []
    for replica, of_replica in curves.sort_values("epoch").groupby("replica"):
        own = {name: table[COLUMNS].to_numpy() for name, table in of_replica.groupby("network")}
        if len(own) < len(NETWORKS):
            continue
        late = {name: table[-LATE:].mean(0) for name, table in own.items()}
        worse = max(late, key=lambda name: late[name][0])
        for name, table in own.items():
            row = late[name] if name == worse else _first_at(table, late[worse][0])
            rows.append((replica, name, *map(float, row)))
    return pd.DataFrame(rows, columns=["replica", "network", *COLUMNS])


def _first_at(table: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """`familiar, novel, epoch` where `familiar` first falls to `level`, interpolated in a table `[epochs, 3]`."""
    level = max(level, table[:, 0].min())  # rounding can put a mean of equal errors just below them
    first = int(np.flatnonzero(table[:, 0] <= level)[0])
    if first == 0:
        return table[0]
    before, after = table[first - 1], table[first]
    return before + (before[0] - level) / (before[0] - after[0]) * (after - before)


def outcome(capsules: pd.DataFrame, cnn: pd.DataFrame, images: Mapping[str, int]) -> Outcome:
    """Compare two networks. The table has both networks' errors after every epoch. `matched` has the values of `match`.
    `late` has means over the last `LATE` epochs. `novel_ratio` is the capsules' matched error on novel viewpoints
    divided by the convolutional network's, by replica.

    Args:
        capsules, cnn: as `errors` returns them.
        images: numbers of test images, under `familiar` and `novel`.
    """
    curves = pd.concat([capsules.assign(network="capsules"), cnn.assign(network="cnn")], ignore_index=True)
    matched, each = match(curves), ["replica", "network"]
    late = curves.sort_values("epoch").groupby(each).tail(LATE).groupby(each, as_index=False)[COLUMNS].mean()
    novel = matched.pivot_table(index="replica", columns="network", values="novel")
    numbers: dict[str, Any] = {
        kind: nest(table.melt(each, COLUMNS, "measure"), ["network", "measure"], "value")
        for kind, table in (("matched", matched), ("late", late))
    }
    numbers |= {"novel_ratio": spread(novel["capsules"] / novel["cnn"]), "images": dict(images)}
    headline = tuple(f"matched.{network}.{views}" for network in NETWORKS for views in ("familiar", "novel"))
    return Outcome("viewpoint", curves, numbers, headline)
