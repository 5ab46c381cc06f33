"""What is asked of a trained model: what is asked of every model that gives features."""

from pipeline.probes.evaluation import evaluate

__all__ = ["evaluate"]
