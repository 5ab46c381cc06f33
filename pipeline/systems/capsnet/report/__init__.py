"""What the page shows of CapsNet."""
