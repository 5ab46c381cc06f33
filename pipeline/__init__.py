"""Capsule networks as probabilistic models: one library behind every stage of the pipeline."""
