"""The evaluation on test images of every model with features: probes, clusters, and the model's own metrics."""

from __future__ import annotations

from tqdm import tqdm

from pipeline.learning.evaluation import EvaluationInputs
from pipeline.probes.clusters import cluster_accuracies
from pipeline.probes.generalisation import AFFINE, probe_accuracies, rotated
from pipeline.probes.metrics import metrics_on_test_images
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, stack_replicas


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Accuracies of probes on clean, rotated and affinely warped test images, accuracies of clusters on clean ones, and
    the training metrics on test images.
    """
    models, dataset, device, params = inputs.models, inputs.dataset, inputs.device, inputs.sections["evaluate"]
    assert isinstance(params, EvaluateParams)
    official = inputs.official()
    bar = tqdm(models, desc=inputs.title, unit="seed")
    table = stack_replicas([probe_accuracies(model, dataset, params, device, official) for model in bar])
    measured = stack_replicas([metrics_on_test_images(model, dataset, params.seed, device) for model in models])
    clusters = stack_replicas([cluster_accuracies(model, dataset, params.seed, device) for model in models])
    numbers = {
        "probe": nest(table, ["features", "protocol", "test"], "accuracy"),
        "kmeans": nest(clusters, ["features"], "accuracy"),
        "test": nest(measured, ["metric"], "value"),
    }
    tests = dict.fromkeys((rotated(min(params.angles)), rotated(max(params.angles)), AFFINE))
    headline = [f"test.{name}" for name in ("bound", "loss", "accuracy", "pixel_error") if name in numbers["test"]]
    headline += [f"probe.{name}.refit.{test}" for name in numbers["probe"] for test in tests]
    return Outcome("probes", table, numbers, tuple(headline[:MOST_HEADLINES]))
