"""Writes, reads and checks results. Also reads the claims of the documents, which results confirm or refute."""
