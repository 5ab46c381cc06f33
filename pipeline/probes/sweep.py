"""The sweep of rotations: models trained and tested on images rotated by up to some angle (document 000, Figure 4)."""

import math

from pipeline.learning.model import EvaluationInputs
from pipeline.learning.runs import best_rows
from pipeline.learning.settings import RunSettings
from pipeline.learning.train import Trained
from pipeline.probes.generalisation import rotation_probes
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, spread, stack_replicas


def swept(run: RunSettings, angle: float, replicas: int, training_share: float) -> RunSettings:
    """A run's settings in the sweep: images rotated within +-`angle` degrees, at most `replicas` seeds, and the share
    `training_share` of the run's epochs. (The sweep sets a share, because systems need different numbers of epochs.)
    """
    augmentation = run.augmentation.model_copy(update={"rotation": float(angle)})
    shorter = run.with_epochs(math.ceil(run.training.epochs * training_share))
    return shorter.model_copy(update={"replicas": min(replicas, run.replicas), "augmentation": augmentation})


def sweep(inputs: EvaluationInputs, trained: Trained) -> Outcome:
    """Measure a `swept` run: its validation bound or loss at the epoch whose weights are kept, and accuracies of probes
    on features and posterior samples. Probes are fit and tested on images rotated within the run's angle.
    """
    dataset, device, probe = inputs.dataset, inputs.device, inputs.params.evaluate
    angle = inputs.run.augmentation.rotation
    table = stack_replicas(
        [rotation_probes(model, dataset, angle, probe, device, sampled=True) for model in inputs.models]
    )
    accuracies = nest(table, ["features"], "accuracy")
    best = best_rows(trained)
    name = "bound" if "validation_bound" in best else "loss"
    validation = {name: spread(best[f"validation_{name}"])}
    headline = [f"probe.{features}" for features in accuracies] + [f"validation.{name}"]
    return Outcome("sweep", table, {"probe": accuracies, "validation": validation}, tuple(headline))
