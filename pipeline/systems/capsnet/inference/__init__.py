"""Iterative inference in a trained network, in place of its forward pass."""
