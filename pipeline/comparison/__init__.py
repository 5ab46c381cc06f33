"""Compares two states of the repository: their parameters, and the claims whose number or verdict differs."""
