"""Results of studies: their form, how they are written, and how they are read back."""
