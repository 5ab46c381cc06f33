"""Measurements of any model: probes and clusters of its features, sparsity, equivariance."""
