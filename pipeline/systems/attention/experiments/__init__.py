"""Studies of top-down attention. Each module measures one kind of study, in its function `run(study)`."""
