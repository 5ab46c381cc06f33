"""What is done around the pipeline: running it on several machines."""
