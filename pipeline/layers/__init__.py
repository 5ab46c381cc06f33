"""What models are made of."""
