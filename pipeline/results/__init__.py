"""One home for a number: what studies return, how it is written, and how it is read back."""
