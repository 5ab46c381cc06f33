"""The study of capsule regression. Its kinds are the modules of `experiments`."""
