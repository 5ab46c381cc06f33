"""The study of capsule regression; its kinds are in `experiments`."""
