"""What the page shows of top-down attention."""
