"""What is asked of any model that gives features: probes, clusters, sparsity."""
