"""The model: closed forms, EM, its schedule, and fits of whole architectures."""
