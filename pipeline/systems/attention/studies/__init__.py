"""The study of top-down attention; its kinds are in `experiments`."""
