"""Probabilistic capsules, document 000 (Smith et al. 2020)."""
