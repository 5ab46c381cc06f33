"""The evaluation of a trained VAE. It is that of every model that has features for probes."""

from pipeline.probes.evaluation import evaluate

__all__ = ["evaluate"]
