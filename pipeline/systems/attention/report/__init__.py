"""Claims, figures and tables of top-down attention."""
