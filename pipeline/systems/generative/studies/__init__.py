"""One module per study of the probabilistic capsule model."""
