"""The study of top-down attention, with a module in `experiments` for each of its kinds."""
