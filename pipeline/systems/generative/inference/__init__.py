"""Free-form inference: the encoder's posterior of each image is optimised."""
