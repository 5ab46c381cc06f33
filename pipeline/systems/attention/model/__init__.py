"""The top-down model: its densities, generated scenes, its inversion, and routing for comparison."""
