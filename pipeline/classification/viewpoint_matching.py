"""Generalisation to novel viewpoints at equal errors on familiar ones (document 004, section 5.1, Table 2).

Both networks are trained on images of familiar viewpoints only. A network that is better on all viewpoints would seem
to generalise better. So each is evaluated at the first epoch at which its error on familiar test images is as low as
the lowest error of the worse network. In the document that is the convolutional network, so the capsules stop early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from pipeline.classification.settings import ViewpointParams
from pipeline.data.datasets import PARTS, Dataset
from pipeline.data.viewpoints import split_viewpoints
from pipeline.learning.gradient import Labelled
from pipeline.learning.settings import RunSettings
from pipeline.results.outcome import Outcome
from pipeline.results.spread import spread

Axis = Literal["azimuth", "elevation"]


AnyRun = TypeVar("AnyRun", bound=RunSettings)


def viewed(run: AnyRun, study: ViewpointParams) -> AnyRun:
    """A run as the study trains it: on the study's data, and to the end of its epochs, because the epoch at which two
    networks are compared is found afterwards.
    """
    longer = run.with_epochs(study.epochs)
    training = longer.training.model_copy(update={"patience": study.epochs})
    return longer.model_copy(update={"dataset": study.dataset, "replicas": study.replicas, "training": training})


@dataclass(frozen=True)
class Views:
    """A data set to learn familiar viewpoints from.

    Attributes:
        dataset: whose training and validation images are all familiar.
        watched: test images and their classes, `familiar` and `novel`.
    """

    dataset: Dataset
    watched: dict[str, Labelled]


def familiar_views(dataset: Dataset, axis: Axis) -> Views:
    """The data set without novel viewpoints to learn from.

    Raises:
        ViewpointError: viewpoints of images in a part are unknown.
    """
    kept, watched = {}, {}
    for part in PARTS:
        chosen = dataset.split[part]
        views = split_viewpoints({name: values[chosen] for name, values in dataset.factors.items()}, axis)
        kept[part] = chosen if part == "test" else chosen[views.familiar]
        if part == "test":
            for name, mask in (("familiar", views.familiar), ("novel", views.novel)):
                watched[name] = (dataset.images[chosen[mask]], dataset.labels[chosen[mask]])
    return Views(replace(dataset, split=kept), watched)


def errors(history: pd.DataFrame) -> pd.DataFrame:
    """Columns replica, epoch, familiar, novel: test errors after every epoch of a training, from its history."""
    table = history[["replica", "epoch"]].copy()
    for name in ("familiar", "novel"):
        table[name] = 1 - history[f"{name}_accuracy"]
    return table


def match(capsules: pd.DataFrame, cnn: pd.DataFrame) -> pd.DataFrame:
    """Columns replica, network, epoch, familiar, novel: both networks where they first reach the error, on familiar
    viewpoints, that the worse of the two has at its best.

    Args:
        capsules, cnn: `errors` of as many replicas; those of one number are matched.
    """
    rows = []
    for replica in np.intersect1d(capsules["replica"], cnn["replica"]):
        own = {
            name: table[table["replica"] == replica].sort_values("epoch")
            for name, table in (("capsules", capsules), ("cnn", cnn))
        }
        level = max(table["familiar"].min() for table in own.values())
        for name, table in own.items():
            first = table[table["familiar"] <= level].iloc[0]
            rows.append((int(replica), name, int(first["epoch"]), first["familiar"], first["novel"]))
    return pd.DataFrame(rows, columns=["replica", "network", "epoch", "familiar", "novel"])


def outcome(capsules: pd.DataFrame, cnn: pd.DataFrame, trained: Mapping[str, Any]) -> Outcome:
    """Both networks' errors after every epoch, where they match, and at the best they reach on familiar viewpoints.

    Args:
        trained: settings of both networks, `capsules` and `cnn`.
    """
    matched = match(capsules, cnn)
    curves = pd.concat([capsules.assign(network="capsules"), cnn.assign(network="cnn")], ignore_index=True)
    best = curves.loc[curves.groupby(["replica", "network"])["familiar"].idxmin()]
    numbers = {
        kind: {
            network: {
                column: spread(table[table["network"] == network][column]) for column in ("familiar", "novel", "epoch")
            }
            for network in ("capsules", "cnn")
        }
        for kind, table in (("matched", matched), ("best", best))
    }
    headline = tuple(f"matched.{network}.{views}" for network in trained for views in ("familiar", "novel"))
    return Outcome("viewpoint", curves, numbers, headline, trained=trained)
