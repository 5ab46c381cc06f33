"""Evaluates a trained SCAE: probes, and the information that the presences of objects carry about the image."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.learning.model import EvaluationInputs
from pipeline.probes import evaluation
from pipeline.probes.features import features
from pipeline.results.outcome import Outcome
from pipeline.results.spread import spread


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Evaluate probes, and `presence_information_by_object`: the information of `Objects.presence` about the image, in
    nats, summed over objects. For this, a presence is used as a probability, although the model does not sample it.
    """
    outcome = evaluation.evaluate(inputs)
    images = inputs.dataset.part("test")[0]
    presences = [features(model, images, inputs.device)["prior"] for model in inputs.models]
    measured = {"presence_information_by_object": spread(bernoulli_information(each).sum() for each in presences)}
    return replace(outcome, numbers={**outcome.numbers, "test": {**outcome.numbers["test"], **measured}})


def bernoulli_information(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mutual information `[O]`, in nats, between the image and each of O binary variables. `probabilities [N, O]` has
    each variable's probability p in N images. The result is the mean of KL(Bern(p) || Bern(mean p)) over images.
    """
    p = np.asarray(probabilities, np.float64)

    def entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
        both = np.stack([p, 1 - p])
        return np.asarray(-(both * np.log(np.where(both > 0, both, 1.0))).sum(0))

    return entropy(p.mean(0)) - entropy(p).mean(0)
