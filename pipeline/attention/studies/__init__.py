"""Experiments on the top-down model: each takes settings and gives an `Outcome`."""
