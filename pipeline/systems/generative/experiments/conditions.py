"""Train and measure a run under several conditions, which differ in the settings of the model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from pipeline.context import Context
from pipeline.learning.runs import of_kind
from pipeline.probes.features import metrics_on_test_images
from pipeline.probes.generalisation import rotation_probes
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeModelParams


def measure(
    context: Context,
    study: str,
    kind: str,
    models: Mapping[str, tuple[str, GenerativeModelParams]],
    probed: Sequence[str],
    headline: Sequence[str],
    more: Callable[[GenerativeModel], dict[str, float]] = lambda model: {},
    **numbers: Any,
) -> Outcome:
    """Train the run of a study with each of the settings in `models`, with the study's numbers of epochs and replicas.
    Settings of the model that count epochs are scaled accordingly. Metrics, on clean test images, are accuracies of
    probes on the features `probed`, pixel_error and `more`. The table has a row per replica, metric and condition.

    Args:
        kind: name of the table's column that names the condition, and the first key of the conditions' numbers.
        models: for each condition, the name of the training and the settings of the model.
        headline: names of the metrics that are headline numbers of each condition.
        more: returns further metrics of a model, by name.
        numbers: further numbers, recorded beside those of the conditions.
    """
    evaluate, device, rows, settings = context.params.evaluate, context.device, [], context.settings
    run, sampled = context.params.runs[settings.run], "t0_sampled" in probed
    dataset = context.dataset(run.dataset)
    for condition, (title, changed) in models.items():
        shorter = run.model_copy(update={"model": changed}).with_epochs(settings.epochs)
        _, trained = context.train(title, shorter.model_copy(update={"replicas": settings.replicas}), key=condition)
        for replica, model in enumerate(of_kind(GenerativeModel, trained)):
            probes = rotation_probes(model, dataset, 0.0, evaluate, device, sampled=sampled)
            accuracies = probes.set_index("features")["accuracy"]
            metrics = metrics_on_test_images(model, dataset, evaluate.seed, device)
            found = {name: accuracies[name] for name in probed} | {"pixel_error": metrics["pixel_error"]} | more(model)
            rows += [(replica, metric, float(value), condition) for metric, value in found.items()]
    table = pd.DataFrame(rows, columns=["replica", "metric", "measured", kind])
    names = [f"{kind}.{condition}.{metric}" for condition in models for metric in headline]
    values = nest(table, [kind, "metric"], "measured")
    return Outcome(study, table, {**numbers, kind: values}, tuple(names[:MOST_HEADLINES]))
