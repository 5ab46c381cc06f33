"""Data: where it comes from, how it is read, how it is warped."""
