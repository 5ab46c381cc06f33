"""The evaluation of a trained model: the same as for every model with features."""

from pipeline.probes.evaluation import evaluate

__all__ = ["evaluate"]
