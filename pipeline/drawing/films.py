"""A series of pictures that a page shows one at a time, by a slider: an image turned, and what a model finds in it."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_COLOURS = 128


@dataclass(frozen=True)
class Film:
    """Pictures for each value of a slider.

    Attributes:
        quantity: what the slider sets, such as "rotation of the input", in `unit`.
        values: `[N]`, of the slider.
        strips: what each strip shows, and its pictures `[N, S, S]` or `[N, S, S, 3]`, uint8.
        frames: `[N, P, 4, 2]`, corners of parts in a picture, whose own are at -1 and 1.
        presences: `[N, P]` of the parts, in [0, 1].
        colours: `[P, 3]` of the parts, in [0, 1].
    """

    quantity: str
    unit: str
    values: NDArray[np.float32]
    strips: list[tuple[str, NDArray[np.uint8]]]
    frames: NDArray[np.float32]
    presences: NDArray[np.float32]
    colours: NDArray[np.float32]

    def to_json(self) -> str:
        """All of it as JSON: the strips are one PNG image, a row for each, a column for each value."""
        rows = []
        for _, pictures in self.strips:
            colour = pictures if pictures.ndim == 4 else np.repeat(pictures[..., None], 3, axis=-1)
            rows.append(np.concatenate(list(colour), axis=1))
        image = Image.fromarray(np.concatenate(rows, axis=0))
        content: dict[str, Any] = {
            "quantity": self.quantity,
            "unit": self.unit,
            "values": [float(value) for value in self.values],
            "side": int(self.strips[0][1].shape[1]),
            "strips": [name for name, _ in self.strips],
            "picture": png(image.quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)),
            "frames": rounded(self.frames.reshape(*self.frames.shape[:2], 8)),
            "presences": rounded(self.presences),
            "colours": ["#" + "".join(f"{round(255 * each):02x}" for each in colour) for colour in self.colours],
        }
        return json.dumps(content, separators=(",", ":"), allow_nan=False)


def png(image: Image.Image) -> str:
    """A picture as PNG in base64, for JSON."""
    written = io.BytesIO()
    image.save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def rounded(values: NDArray[np.float32]) -> Any:
    """Numbers for JSON, with three decimals."""
    return np.round(values.astype(float), 3).tolist()
