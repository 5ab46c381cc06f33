"""Claims, figures and tables of the probabilistic capsule model and of the models it is compared with."""
