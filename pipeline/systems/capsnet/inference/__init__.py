"""Iterative inference in a trained network, instead of its forward pass."""
