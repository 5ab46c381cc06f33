"""The evaluation of a trained network, which is the same for every classifier of cropped images."""

from pipeline.classification.errors import evaluate

__all__ = ["evaluate"]
