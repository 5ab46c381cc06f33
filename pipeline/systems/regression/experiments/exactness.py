"""Monte Carlo checks of the closed forms of probabilities and posterior means (document 002, section 2.2)."""

import math

import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.capsules import posterior_means, predict_probabilities
from pipeline.systems.regression.model.fits import Inputs, fit_architecture
from pipeline.systems.regression.settings import ExactnessStudy


def run(inputs: Inputs, study: ExactnessStudy) -> Outcome:
    """The table has one row per test image and quantity: a class's probability, or an element of a posterior mean. Its
    column `deviation` is the Monte Carlo estimate minus the closed form, in standard errors of the estimate. If closed
    forms are exact, deviations are approximately standard normal: their mean square is near 1, and few exceed 3.
    """
    architecture = build_architecture("multiclass", study.size, inputs.classes)
    W = fit_architecture(inputs, architecture, study.schedule)[0][0].double()
    generator = torch.Generator().manual_seed(study.seed)
    rows = []
    for index in range(min(study.images, len(inputs.X["test"]))):
        x, y = inputs.X["test"][index : index + 1].double(), inputs.y["test"][index : index + 1]
        exact_P, exact_h = predict_probabilities(W, x)[0], posterior_means(W, x, y)[0]
        noise = torch.randn(study.samples, *W.shape[:2], generator=generator, dtype=torch.float64)
        h = (W @ x[0]) + noise.to(W)
        lengths = h.square().sum(-1)
        share = lengths / lengths.sum(-1, keepdim=True)
        error = share.std(0) / math.sqrt(len(h))
        rows += [(index, "probability", float(z)) for z in (share.mean(0) - exact_P) / error]
        own = share[:, int(y[0])]
        estimate = (h * own[:, None, None]).mean(0) / own.mean()
        # The standard error of a ratio of means, by the delta method.
        error = ((h - estimate) * own[:, None, None]).std(0) / math.sqrt(len(h)) / own.mean()
        rows += [(index, "posterior mean", float(z)) for z in ((estimate - exact_h) / error).flatten()]
    table = pd.DataFrame(rows, columns=["image", "quantity", "deviation"])
    numbers = {
        str(quantity).replace(" ", "_"): {
            "largest": one(deviations.abs().max()),
            "mean_square": one((deviations**2).mean()),
            "count": len(deviations),
        }
        for quantity, deviations in table.groupby("quantity")["deviation"]
    }
    return Outcome("exactness", table, numbers, tuple(f"{quantity}.largest" for quantity in numbers))
