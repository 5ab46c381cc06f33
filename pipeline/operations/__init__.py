"""Commands that run the pipeline in parallel, publish and export its results, and show tracked runs."""
