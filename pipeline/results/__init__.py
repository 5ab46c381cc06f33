"""Results of stages (their form, writing and reading), and the documents' claims that they answer."""
