"""Experiments on capsule regression: each takes inputs and settings and gives an `Outcome`."""
