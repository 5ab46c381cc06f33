"""The variational autoencoder that document 000 compares with."""
