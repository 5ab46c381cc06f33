"""How the studies of the probabilistic capsule model are carried out."""
