"""One module per study of top-down attention; `attention` runs them."""
