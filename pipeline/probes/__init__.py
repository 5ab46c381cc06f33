"""Measurements for any model: probes and clusters of its features, sparsity and equivariance."""
