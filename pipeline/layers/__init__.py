"""Layers and functions shared by models."""
