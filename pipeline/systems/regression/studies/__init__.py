"""One module per study of capsule regression; `regression` runs them."""
