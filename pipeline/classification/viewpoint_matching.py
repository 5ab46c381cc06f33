"""Generalisation to novel viewpoints at equal errors on familiar ones (document 004, section 5.1, Table 2).

Both networks are trained on images of familiar viewpoints only. A network that is better on all viewpoints would seem
to generalise better. So each is evaluated where its error on familiar test images first falls to the lowest error of
the worse network, between epochs by linear interpolation. In the document that is the convolutional network, so the
capsules stop early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.data.datasets import PARTS, Dataset
from pipeline.data.viewpoints import is_familiar
from pipeline.learning.settings import RunSettings
from pipeline.learning.train import Labelled
from pipeline.results.outcome import Outcome
from pipeline.results.spread import spread

if TYPE_CHECKING:
    from pipeline.studies.viewpoint import ViewpointParams

Axis = Literal["azimuth", "elevation"]
NETWORKS = ("capsules", "cnn")
AnyRun = TypeVar("AnyRun", bound=RunSettings)


def viewed(run: AnyRun, study: ViewpointParams) -> AnyRun:
    """A run as the study trains it: on the study's data, and to the end of its epochs, because the epoch at which two
    networks are compared is found afterwards.
    """
    longer = run.with_epochs(study.epochs)
    training = longer.training.model_copy(update={"patience": study.epochs})
    return longer.model_copy(update={"dataset": study.dataset, "replicas": study.replicas, "training": training})


def familiar_views(dataset: Dataset, axis: Axis) -> tuple[Dataset, dict[str, Labelled]]:
    """A data set to learn familiar viewpoints from: its training and validation images are all familiar; and the test
    images with their classes, `familiar` and `novel`.

    Raises:
        ViewpointError: viewpoints of images in a part are unknown.
    """
    familiar = {}
    for part in PARTS:
        chosen = dataset.split[part]
        familiar[part] = is_familiar({name: values[chosen] for name, values in dataset.factors.items()}, axis)
    kept = {part: dataset.split[part][familiar[part]] for part in ("train", "validation")}
    test = dataset.split["test"]
    watched = {
        name: (dataset.images[test[mask]], dataset.labels[test[mask]])
        for name, mask in (("familiar", familiar["test"]), ("novel", ~familiar["test"]))
    }
    return replace(dataset, split=dataset.split | kept), watched


def errors(history: pd.DataFrame) -> pd.DataFrame:
    """Columns replica, epoch, familiar, novel: test errors after every epoch of a training, from its history."""
    table = history[["replica", "epoch"]].copy()
    for name in ("familiar", "novel"):
        table[name] = 1 - history[f"{name}_accuracy"]
    return table


def match(capsules: pd.DataFrame, cnn: pd.DataFrame) -> pd.DataFrame:
    """Columns replica, network, epoch, familiar, novel: both networks where they first reach the error, on familiar
    viewpoints, that the worse of the two has at its best. A network whose error is lower from its first epoch on is not
    matched: its row is of that epoch.

    Args:
        capsules, cnn: `errors` of as many replicas; those of one number are matched.
    """
    rows = []
    for replica in np.intersect1d(capsules["replica"], cnn["replica"]):
        own = {
            name: table[table["replica"] == replica].sort_values("epoch")[["epoch", "familiar", "novel"]].to_numpy()
            for name, table in (("capsules", capsules), ("cnn", cnn))
        }
        level = max(table[:, 1].min() for table in own.values())
        rows += [(int(replica), name, *_first_at(table, level)) for name, table in own.items()]
    return pd.DataFrame(rows, columns=["replica", "network", "epoch", "familiar", "novel"])


def _first_at(table: NDArray[np.float64], level: float) -> tuple[float, float, float]:
    """The row `epoch, familiar, novel` of a table `[epochs, 3]` where `familiar` first falls to `level`."""
    first = int(np.flatnonzero(table[:, 1] <= level)[0])
    found = table[first]
    if first > 0:
        before, after = table[first - 1], table[first]
        found = before + (before[1] - level) / (before[1] - after[1]) * (after - before)
    epoch, familiar, novel = map(float, found)
    return epoch, familiar, novel


def outcome(capsules: pd.DataFrame, cnn: pd.DataFrame, images: Mapping[str, int]) -> Outcome:
    """Both networks' errors after every epoch, where they match, and at the best they reach on familiar viewpoints; and
    the capsules' error on novel viewpoints, in parts of the convolutional network's of the same replica, where they
    match.

    Args:
        images: number of test images, `familiar` and `novel`.
    """
    matched = match(capsules, cnn)
    curves = pd.concat([capsules.assign(network="capsules"), cnn.assign(network="cnn")], ignore_index=True)
    best = curves.loc[curves.groupby(["replica", "network"])["familiar"].idxmin()]
    novel = matched.pivot_table(index="replica", columns="network", values="novel")
    numbers: dict[str, Any] = {
        kind: {
            network: {
                column: spread(table[table["network"] == network][column]) for column in ("familiar", "novel", "epoch")
            }
            for network in NETWORKS
        }
        for kind, table in (("matched", matched), ("best", best))
    }
    numbers |= {"novel_ratio": spread(novel["capsules"] / novel["cnn"]), "images": dict(images)}
    headline = tuple(f"matched.{network}.{views}" for network in NETWORKS for views in ("familiar", "novel"))
    return Outcome("viewpoint", curves, numbers, headline)
