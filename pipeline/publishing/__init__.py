"""Published results: trained weights and arrays of a profile in a DVC remote inside the repository, and model cards."""
