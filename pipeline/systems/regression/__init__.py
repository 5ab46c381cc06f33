"""Capsule regression (Saul 2021, document 002): its closed forms, its fits, and an estimator for scikit-learn."""
