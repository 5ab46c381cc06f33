"""Commands around the pipeline: run it in parallel, publish and export results, show tracked runs."""
