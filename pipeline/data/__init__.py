"""Data: sources, readers and warps."""
