"""k-means matched to classes: planted clusters are found, whatever their numbers; mixtures score what they must."""

import numpy as np

from pipeline.probes.evaluation import kmeans_accuracy, matched_accuracy


def test_a_cluster_is_one_class_and_a_class_one_cluster() -> None:
    """Greedy matching would give cluster 0 (four of class 0, three of class 1) to class 0 and end at 5 of 10 images:
    by hand, cluster 0 to class 1 and cluster 1 to class 0 gets 3 + 3.
    """
    assert matched_accuracy(np.array([2, 2, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])) == 1.0, "whatever their numbers"
    clusters = np.array([0] * 7 + [1] * 3)
    labels = np.array([0] * 4 + [1] * 3 + [0] * 3)
    assert matched_accuracy(clusters, labels) == 0.6
    assert matched_accuracy(np.zeros(6, int), np.array([0, 0, 0, 1, 1, 2])) == 0.5, "one cluster is one class"
    assert matched_accuracy(np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1])) == 0.5, "two clusters are left over"


def planted(classes: int, each: int, sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Points around the corners of a simplex, in random order."""
    random = np.random.default_rng(0)
    labels = random.permutation(np.repeat(np.arange(classes), each))
    return (np.eye(classes)[labels] + random.normal(0, sd, (len(labels), classes))).astype(np.float32), labels


def test_planted_clusters_are_found() -> None:
    values, labels = planted(10, 30, 0.05)
    assert kmeans_accuracy(values, labels, 10, 0) == 1.0


def test_noise_is_near_chance_and_features_are_taken_as_they_are() -> None:
    random = np.random.default_rng(1)
    labels = np.repeat(np.arange(10), 60)
    assert kmeans_accuracy(random.normal(size=(600, 5)).astype(np.float32), labels, 10, 0) < 0.25
    # A direction of small variance that tells the classes apart is drowned, not blown up.
    values, labels = planted(2, 100, 0.01)
    loud = np.concatenate([values, random.normal(0, 30, (200, 1))], axis=1)
    assert kmeans_accuracy(loud, labels, 2, 0) < 0.7
