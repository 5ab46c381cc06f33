"""What the page shows of capsule regression."""
