"""As of every classifier of crops."""

from pipeline.classification.errors import evaluate

__all__ = ["evaluate"]
