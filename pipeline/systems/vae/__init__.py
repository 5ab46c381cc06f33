"""The variational autoencoder, a baseline of document 000."""
