"""Classifiers, and the measurements common to all of them."""
