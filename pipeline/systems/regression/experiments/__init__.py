"""One module for each kind of study of capsule regression. Each has a function `run(inputs, study)`."""
