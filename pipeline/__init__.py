"""Capsule networks as probabilistic models: the library used by all stages of the pipeline."""

import os
import sys
from importlib.util import find_spec

if find_spec("typer") is None or find_spec("pyro") is None:
    sys.exit(f"error: {sys.executable} lacks the packages of this project: run `make setup`, and use .venv/bin/python")

# How long threads of numerical kernels spin before they sleep while they wait for each other; OpenMP (GNU's, which
# torch brings) reads it when torch is first imported. Spinning saves waking up, of which small kernels need many; but
# with a core that something else uses, two spinning threads keep each other from working. An epoch of a capsule model
# on two cores, quiet and beside another process: 1.4 and 17 s with the 300,000 turns that are the default, 1.5 and
# 4.1 s with these, 2.0 and 3.1 s with 1,000.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
