"""Capsule networks as probabilistic models: the library used by all stages of the pipeline."""

import os
import sys
from importlib.util import find_spec

if find_spec("typer") is None or find_spec("pyro") is None:
    sys.exit(f"error: {sys.executable} lacks the packages of this project: run `make setup`, and use .venv/bin/python")

# GOMP_SPINCOUNT is the number of times that a waiting thread polls before it sleeps. PyTorch includes GNU OpenMP, which
# reads this variable when torch is first imported. A polling thread continues without the delay of waking up, which
# matters in short parallel loops. But if another process uses a core, a polling thread takes time from the threads that
# it waits for. If no other process runs, an epoch of a capsule model on two cores takes 1.4 s with the default of
# 300,000, 1.5 s with 4,000, and 2.0 s with 1,000. If another process runs, the times are 17 s, 4.1 s and 3.1 s.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
