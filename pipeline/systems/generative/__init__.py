"""Probabilistic capsules, document 000 (Smith et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.generative.settings import GenerativeModelParams, GenerativeRun
from pipeline.systems.system import System

if TYPE_CHECKING:
    from pipeline.systems.generative.model.generative_model import GenerativeModel


def _build(settings: GenerativeModelParams, size: int) -> GenerativeModel:
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    return GenerativeModel(settings, size)


SYSTEM = System(
    name="generative",
    label="probabilistic capsules",
    description="Capsules as a probabilistic generative model (Smith, Schut, Gal and van der Wilk 2020)",
    document="000",
    colour="#D55E00",
    marker="s",
    run=GenerativeRun,
    build=_build,
    swept=True,
    layers={"parts": "own", "objects": "own"},
)
