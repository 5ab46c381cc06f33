"""Unsupervised classification: clusters of features, matched to classes (Kosiorek et al. 2019, section 3.1).

k-means finds as many clusters as there are classes, without labels. Labels are used only to match clusters and classes
one to one, with the most images correct (Hungarian algorithm).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.probes.features import features

STARTS = 10
"""Random starts of k-means; the one with the lowest inertia is used."""


def matched_accuracy(clusters: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Share of images whose cluster is matched to their label, under the best one-to-one matching; both `[N]`."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((clusters.max() + 1, labels.max() + 1), np.int64)
    np.add.at(counts, (clusters, labels), 1)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / len(labels))


def kmeans_accuracy(values: NDArray[np.float32], labels: NDArray[np.int64], classes: int, seed: int) -> float:
    """`matched_accuracy` of k-means on features `[N, d]`, with as many clusters as classes."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # As published, features are not standardised: presences share one unit.
    with threadpool_limits(limits=1):
        clusters = KMeans(classes, n_init=STARTS, max_iter=1000, random_state=seed).fit_predict(
            values.astype(np.float64)
        )
    return matched_accuracy(clusters, labels)


def cluster_accuracies(model: Model, dataset: Dataset, seed: int, device: torch.device) -> pd.DataFrame:
    """The accuracy of each kind of features of one model on the unwarped test images: columns features, accuracy.

    As published, the clusters are fit to the test images themselves.
    """
    images, labels = dataset.part("test")
    classes = len(np.unique(dataset.labels))
    rows = [
        (name, kmeans_accuracy(values, labels, classes, seed))
        for name, values in features(model, images, device).items()
    ]
    return pd.DataFrame(rows, columns=["features", "accuracy"])
