"""The evaluation of a trained network, the same as for every classifier of crops."""

from pipeline.classification.errors import evaluate

__all__ = ["evaluate"]
