"""Claims and figures of top-down attention."""
