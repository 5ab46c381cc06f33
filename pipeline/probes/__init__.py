"""Measurements of any model with features: probes, clusters, sparsity."""
