"""Inference beyond the encoder."""
