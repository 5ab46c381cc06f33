"""One module for each kind of study of capsule regression, each with `run(inputs, study)`."""
