"""Capsule networks as probabilistic models: one library behind every stage of the pipeline."""

import os

# How long threads of numerical kernels spin before they sleep while they wait for each other; OpenMP (GNU's, which
# torch brings) reads it when torch is first imported. It spins for milliseconds by default, and with a core that
# something else uses, two spinning threads keep each other from working: an epoch took 40 to 120 s so, 7 s with this,
# beside the same other work.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
