"""How the studies of CapsNet are carried out."""
