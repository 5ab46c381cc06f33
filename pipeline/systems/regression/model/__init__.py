"""Capsule regression itself: closed forms, EM, its schedule, and fits of whole architectures."""
