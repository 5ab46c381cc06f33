"""Capsule networks as probabilistic models: the library used by all stages of the pipeline."""

import os
import sys
from importlib.util import find_spec

if find_spec("typer") is None or find_spec("pyro") is None:
    sys.exit(f"error: {sys.executable} lacks the packages of this project: run `make setup`, and use .venv/bin/python")

# How often the threads of a numerical kernel spin before they sleep while they wait for each other; GNU's OpenMP, which
# torch brings, reads the variable when torch is first imported. Spinning saves the time to wake up, which small kernels
# need often; but on a core that another process uses, spinning threads keep each other from working. An epoch of a
# capsule model on two cores, without and with another process: 1.4 and 17 s with the default of 300,000 turns, 1.5 and
# 4.1 s with 4,000, 2.0 and 3.1 s with 1,000.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
