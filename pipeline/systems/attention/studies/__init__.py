"""The study of top-down attention. Each kind of this study has a module in `experiments`."""
