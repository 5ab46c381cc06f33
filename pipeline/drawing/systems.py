"""The colour and marker of each system, the same in every figure.

They are not in `style`, because data sets are prepared again if that module changes.
"""

from __future__ import annotations

from pipeline.drawing.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION

SYSTEMS = {
    "generative": (VERMILLION, "s"),
    "scae": (ORANGE, "P"),
    "vae": (GREEN, "^"),
    "capsnet": (SKY, "D"),
    "matrix_capsules": (BLUE, "o"),
    "cnn": (PURPLE, "v"),
    "regression": (INK, "X"),
}
"""By the variant of the systems' runs."""
