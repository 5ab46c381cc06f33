"""Attacks on matrix capsules and on a convolutional network (document 004, section 6, Figure 3)."""

from pipeline.classification.settings import AttackParams
from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.shared_params import SharedParams

SETTINGS = AttackParams


def check(params: SharedParams, where: str, study: AttackParams) -> None:
    """Raise `ValueError` for an unknown run, a wrong system, a CNN with one replica, or runs on different images."""
    params.run_of(f"{where}.capsules", study.capsules, "matrix_capsules")
    if params.run_of(f"{where}.cnn", study.cnn, "cnn").replicas < 2:
        raise ValueError(f"{where}.cnn: '{study.cnn}' must have at least 2 replicas: one attacks the other")
    for setting in ("dataset", "augmentation"):
        ours, theirs = (getattr(params.runs[each], setting) for each in (study.capsules, study.cnn))
        if ours != theirs:
            raise ValueError(
                f"{where}: '{study.capsules}' and '{study.cnn}' must see the same images: their {setting} differs"
            )


def measure(context: Context) -> Outcome:
    """Attack the trained networks of an entry of `attack`."""
    from pipeline.classification.adversarial import outcome
    from pipeline.classification.classifier import Classifier

    settings: AttackParams = context.settings
    capsules = context.params.runs[settings.capsules]
    dataset = context.evaluated(capsules.dataset)
    attacked, beside = (context.models(name, Classifier) for name in (settings.capsules, settings.cnn))
    crop = capsules.augmentation.seen_size(dataset.images.shape[-1])
    return outcome(attacked, beside, dataset, settings, crop, context.label)
