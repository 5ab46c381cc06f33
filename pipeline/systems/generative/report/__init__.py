"""What the page shows of the probabilistic capsule model, and of what it is compared with."""
