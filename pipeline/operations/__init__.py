"""Commands around the pipeline: run it in parallel, publish, export, show tracked runs, and a demonstration."""
