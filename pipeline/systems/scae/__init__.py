"""The stacked capsule autoencoder (Kosiorek et al. 2019)."""
