"""Cut scikit-learn's two sample photographs into small images, a folder for each photograph (see docs/own-images.md).

python scripts/example_images.py data/own/photos
"""

from __future__ import annotations

from pathlib import Path

import typer
from PIL import Image
from sklearn.datasets import load_sample_image

SIDE = 32
CLASSES = {"temple": "china.jpg", "flower": "flower.jpg"}


def main(folder: Path) -> None:
    """Write squares of `SIDE` pixels to `folder/<class>`, row by row. Incomplete squares at edges are left out."""
    for name, photograph in CLASSES.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        pixels = load_sample_image(photograph)
        height, width, _ = pixels.shape
        corners = [(y, x) for y in range(0, height - SIDE + 1, SIDE) for x in range(0, width - SIDE + 1, SIDE)]
        for number, (y, x) in enumerate(corners):
            Image.fromarray(pixels[y : y + SIDE, x : x + SIDE]).save(target / f"{number:03}.png")
        print(f"{target}: {len(corners)} images")


if __name__ == "__main__":
    typer.run(main)
