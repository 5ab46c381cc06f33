"""What is asked of a trained network: what is asked of every classifier of crops."""

from pipeline.classification.errors import evaluate

__all__ = ["evaluate"]
