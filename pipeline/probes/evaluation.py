"""Evaluates models on test images by probes and clusters of the models' features, and by the metrics of training.

Clusters are an unsupervised classification (Kosiorek et al. 2019, section 3.1): k-means finds as many clusters as there
are classes. Labels are used only to match clusters to classes one to one. The Hungarian algorithm finds the matching
with the highest accuracy.
"""

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from pipeline.learning.model import EvaluationInputs
from pipeline.probes.features import features, metrics_on_test_images
from pipeline.probes.generalisation import AFFINE, probe_accuracies, rotated
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, spread_each, stack_replicas


def matched_accuracy(clusters: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Share of images whose cluster is matched to their label, in the best one-to-one matching. Arguments are `[N]`."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    counts = contingency_matrix(clusters, labels)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / len(labels))


def kmeans_accuracy(values: NDArray[np.float32], labels: NDArray[np.int64], classes: int, seed: int) -> float:
    """`matched_accuracy` of k-means on features `[N, d]`, with as many clusters as classes. As in the published method,
    features are not standardised, because the features of SCAE are presences, which have a common scale. Clusters are
    fit to the same images that they are tested on.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        kmeans = KMeans(classes, n_init=10, max_iter=1000, random_state=seed)
        return matched_accuracy(kmeans.fit_predict(values.astype(np.float64)), labels)


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Measure accuracies of probes on rotated and affinely warped test images, and on affNIST's images if these are
    given. Also measure accuracies of clusters, and the metrics that training computes, on unwarped test images.
    """
    models, dataset, device, params = inputs.models, inputs.dataset, inputs.device, inputs.params.evaluate
    bar = tqdm(models, desc=inputs.title, unit="seed")
    table = stack_replicas([probe_accuracies(model, dataset, params, device, inputs.official) for model in bar])
    (images, labels), classes = dataset.part("test"), len(np.unique(dataset.labels))
    clusters = [
        {name: kmeans_accuracy(values, labels, classes, params.seed) for name, values in found.items()}
        for found in (features(model, images, device) for model in models)
    ]
    numbers = {
        "probe": nest(table, ["features", "protocol", "test"], "accuracy"),
        "kmeans": spread_each(clusters),
        "test": spread_each([metrics_on_test_images(model, dataset, params.seed, device) for model in models]),
    }
    tests = dict.fromkeys((rotated(min(params.angles)), rotated(max(params.angles)), AFFINE))
    headline = [f"test.{name}" for name in ("bound", "loss", "accuracy", "pixel_error") if name in numbers["test"]]
    headline += [f"probe.{name}.refit.{test}" for name in numbers["probe"] for test in tests]
    return Outcome("probes", table, numbers, tuple(headline[:MOST_HEADLINES]))
