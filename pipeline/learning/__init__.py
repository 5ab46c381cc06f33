"""Training of models."""
