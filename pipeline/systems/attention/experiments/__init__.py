"""One module for each kind of study of top-down attention, each with `run(study)`."""
