"""Capsule regression: its closed forms, EM, the schedule of EM, and fits of whole architectures."""
