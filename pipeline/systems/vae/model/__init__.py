"""All that changes the autoencoder's weights."""
