"""The evaluation of a trained network, the same as for every classifier that sees crops."""

from pipeline.classification.errors import evaluate

__all__ = ["evaluate"]
