"""Probabilistic capsules, document 000 (Smith et al. 2020)."""

from pipeline.systems.generative.settings import GenerativeRun
from pipeline.systems.system import System

SYSTEM = System(
    name="generative",
    label="probabilistic capsules",
    description="Capsules as a probabilistic generative model (Smith, Schut, Gal and van der Wilk 2020)",
    document="000",
    colour="#D55E00",
    marker="s",
    run=GenerativeRun,
    model="generative_model.GenerativeModel",
    swept=True,
    layers={"parts": "own", "objects": "own"},
)
