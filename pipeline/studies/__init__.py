"""Experiments on trained models: they take a model and data and return plain tables and arrays."""
