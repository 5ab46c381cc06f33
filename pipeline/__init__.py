"""Capsule networks as probabilistic models: the library used by all stages of the pipeline."""

import os
import sys
from importlib.util import find_spec

if find_spec("typer") is None or find_spec("pyro") is None:
    sys.exit(f"error: {sys.executable} lacks the packages of this project: run `make setup`, and use .venv/bin/python")

# The number of loop turns that a waiting thread spins before it sleeps. torch brings GNU's OpenMP, which reads this
# variable when torch is first imported. Spinning saves the time to wake up, which matters in small kernels. But if
# another process uses a core, a spinning thread delays the threads that it waits for. Seconds per epoch of a capsule
# model on two cores, without and with another process: 1.4 and 17 with the default of 300,000 turns, 1.5 and 4.1 with
# 4,000 turns, 2.0 and 3.1 with 1,000 turns.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
