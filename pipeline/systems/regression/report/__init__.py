"""Figures, tables and claims about capsule regression, for the page of a profile's results."""
