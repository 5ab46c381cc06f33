"""One module per study of CapsNet."""
