"""The density of the top-down model, its inversion, and routing for comparison."""
