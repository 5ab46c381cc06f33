"""The network, and everything else that affects its weights."""
