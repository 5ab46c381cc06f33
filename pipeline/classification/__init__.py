"""Classifiers, and what is asked of every one of them."""
