"""One module per study of matrix capsules."""
