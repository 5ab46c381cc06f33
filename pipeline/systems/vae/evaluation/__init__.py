"""The evaluation of a trained VAE, which is the common evaluation of models that have features for probes."""

from pipeline.probes.evaluation import evaluate

__all__ = ["evaluate"]
