"""The evaluation of a trained VAE, the same as for every model with features for probes."""

from pipeline.probes.evaluation import evaluate

__all__ = ["evaluate"]
