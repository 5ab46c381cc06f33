"""Whether a training has stopped learning, by its table of epochs."""

from __future__ import annotations

from typing import Any

import pandas as pd

_NEAR = 0.02
"""By how much an accuracy of guessing may exceed one over the number of classes."""


def stalled(history: pd.DataFrame, run: Any) -> str:
    """What shows that a training no longer learns, in words; empty if nothing does.

    A classifier that is no better on images of validation than guessing, at the end, after two epochs or more; a
    gradient of 0 at the end; or gradients that were longer than `training.gradient_clip` in every epoch.

    Args:
        history: columns replica, epoch, train_gradient_norm and, of classifiers, validation_accuracy.
        run: its settings, as they are or as a result recorded them.
    """
    last, clip = history.groupby("replica").tail(1), run.training.gradient_clip
    signs = {
        "the gradient is 0 at the end": last["train_gradient_norm"] == 0,
        f"the gradient norm is above training.gradient_clip, {clip:g}, in every epoch": (
            history.groupby("replica")["train_gradient_norm"].min() > clip
        ),
    }
    if "validation_accuracy" in history:
        guessing = last["validation_accuracy"] <= 1 / run.model.classes + _NEAR
        signs["the accuracy of validation is no better than guessing at the end"] = guessing & (last["epoch"] > 1)
    return "; ".join(
        words if shown.all() else f"{words} ({shown.sum()} of {len(last)} seeds)"
        for words, shown in signs.items()
        if shown.any()
    )
