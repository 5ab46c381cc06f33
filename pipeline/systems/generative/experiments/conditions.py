"""A run that is trained with some settings changed: what is measured in every condition, and how it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from pipeline.learning.runs import of_kind
from pipeline.probes.features import metrics_on_test_images
from pipeline.probes.generalisation import rotation_probes
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeRun

if TYPE_CHECKING:
    from pipeline.studies.context import Context


def measure(
    context: Context,
    study: str,
    kind: str,
    runs: Mapping[str, tuple[str, GenerativeRun]],
    probed: Sequence[str],
    headline: Sequence[str],
    more: Callable[[GenerativeModel], dict[str, float]] = lambda model: {},
    **numbers: Any,
) -> Outcome:
    """Train runs, and measure every replica on clean test images: probes on the features `probed`, and pixel_error.

    Args:
        kind: what a condition is called: a column of the table, and the first of the names of numbers.
        runs: by condition, the name of the training and the run.
        headline: the metrics among the headline numbers.
        more: further metrics of a model.
        numbers: further ones of the study.
    """
    evaluate, device, rows = context.params.evaluate, context.device, []
    sampled = "t0_sampled" in probed
    for condition, (title, run) in runs.items():
        dataset = context.dataset(run.dataset)
        models = of_kind(GenerativeModel, context.train(title, run, key=condition).models)
        for replica, model in enumerate(models):
            probes = rotation_probes(model, dataset, 0.0, evaluate, device, sampled=sampled)
            accuracies = probes.set_index("features")["accuracy"]
            metrics = metrics_on_test_images(model, dataset, evaluate.seed, device).set_index("metric")["value"]
            found = {name: accuracies[name] for name in probed} | {"pixel_error": metrics["pixel_error"]} | more(model)
            rows += [(replica, metric, float(value), condition) for metric, value in found.items()]
    table = pd.DataFrame(rows, columns=["replica", "metric", "measured", kind])
    names = [f"{kind}.{condition}.{metric}" for condition in runs for metric in headline]
    values = nest(table, [kind, "metric"], "measured")
    return Outcome(study, table, {**numbers, kind: values}, tuple(names[:MOST_HEADLINES]))
