"""The evaluation of a trained CapsNet."""

from pipeline.probes.evaluation import evaluate

__all__ = ["evaluate"]
