"""Films for the page: sequences of pictures with a slider.

A film shows either a rotated image with the parts that a model finds, or the iterations of routing. The iterations can
also be drawn as a figure (`strip`).
"""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from pipeline.drawing.pictures import image_rows
from pipeline.drawing.style import VERMILLION, plain

_COLOURS = 128
DARK, BRIGHT = "#1b2a41", "#ffd23f"
"""Colours of shares in maps: `DARK` for 0, `BRIGHT` for the film's largest share. They also differ in lightness."""
_SIDE, _EDGE = 112, 4
"""In pixels: the approximate side of a map in `strip`, and the width of the edge around the map of the right class."""
_SHADES = LinearSegmentedColormap.from_list("shares", [DARK, BRIGHT])


def turning(
    values: NDArray[np.float32],
    series: Sequence[tuple[str, NDArray[np.uint8]]],
    frames: NDArray[np.float32],
    presences: NDArray[np.float32],
    colours: NDArray[np.float32],
) -> str:
    """The film of a rotated image, as JSON. Its one PNG image has a row for each series and a column for each angle.

    Args:
        values: angles of the slider, `[N]`, degrees.
        series: each series' name, such as "input", and its pictures `[N, S, S]` or `[N, S, S, 3]`, uint8.
        frames: corners (x, y) of the frames of P parts, `[N, P, 4, 2]`. In a picture, x goes from -1 (left) to 1,
            and y from -1 (top) to 1. The first two corners are the ends of a frame's upper edge.
        presences: presences of the parts, `[N, P]`, in [0, 1].
        colours: colours of the parts, `[P, 3]`, in [0, 1].
    """
    coloured = (each if each.ndim == 4 else np.repeat(each[..., None], 3, axis=-1) for _, each in series)
    image = Image.fromarray(np.concatenate([np.concatenate(list(each), axis=1) for each in coloured]))
    return in_json(
        quantity="rotation of the input",
        unit="°",
        values=values.tolist(),
        side=int(series[0][1].shape[1]),
        strips=[name for name, _ in series],
        picture=png(image.quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)),
        frames=rounded(frames.reshape(*frames.shape[:2], 8)),
        presences=rounded(presences),
        colours=[to_hex(colour) for colour in colours],
    )


def in_json(**content: Any) -> str:
    """A film's content as JSON, without white space."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def png(image: Image.Image) -> str:
    """A picture as PNG in base64, for JSON."""
    written = io.BytesIO()
    image.save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def rounded(values: NDArray[np.float32]) -> Any:
    """Numbers for JSON, with three decimals."""
    return np.round(values.astype(float), 3).tolist()


@dataclass(frozen=True)
class RoutingFilm:
    """The routing of K images in T iterations, from c types of parts (children) at X positions to n classes.

    Attributes:
        classes: names of the classes.
        used: number of iterations that the network itself runs before it predicts, at most T.
        images, labels: pictures `[K, S, S]`, uint8, and their classes `[K]`, as indices of `classes`.
        parts: activations of the parts, `[K, X, c]`.
        shares: how much of each part is assigned to each class, `[K, T, n, X, c]`, in [0, 1].
        activations, spreads: activations of the classes, and spread of the votes for each class, `[K, T, n]`.
    """

    classes: Sequence[str]
    used: int
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    parts: NDArray[np.float32]
    shares: NDArray[np.float32]
    activations: NDArray[np.float32]
    spreads: NDArray[np.float32]

    @property
    def iterations(self) -> int:
        """The number of iterations, T."""
        return int(self.shares.shape[1])

    def name_of(self, image: int) -> str:
        """The name of an image's class. If the network predicts another class, the name of that class is added."""
        label, taken = int(self.labels[image]), int(self.activations[image, self.used - 1].argmax())
        return self.classes[label] + ("" if taken == label else f", taken for {self.classes[taken]}")

    def stage_of(self, iteration: int) -> str:
        """A label for an iteration (counted from 1), such as "equal shares" or "after update 2, the network's last"."""
        update = f"after update {iteration - 1}" if iteration > 1 else "equal shares"
        if iteration == self.used:
            return f"{update}, the network's last"
        return update if iteration < self.used else f"{update}, beyond the network's last"

    def positions(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Activations `[K, X]` and shares `[K, T, n, X]` of the positions. A position's activation is the mean of its
        parts' activations. Its shares are means of its parts' shares, weighted by the parts' activations.
        """
        together = self.parts.sum(-1)
        given = (self.shares * self.parts[:, None, None]).sum(-1)
        return together / self.parts.shape[-1], given / np.maximum(together, 1e-9)[:, None, None]

    def to_json(self) -> str:
        """The film as JSON, with the activations of positions, and their shares in percent."""
        parts, shares = self.positions()
        iterations = list(range(1, self.iterations + 1))
        images = [
            {
                "name": self.name_of(k),
                "label": int(self.labels[k]),
                "picture": png(Image.fromarray(self.images[k])),
                "parts": rounded(parts[k]),
                "shares": np.round(100 * shares[k]).astype(int).tolist(),
                "activations": rounded(self.activations[k]),
                "spreads": rounded(self.spreads[k]),
            }
            for k in range(len(self.images))
        ]
        return in_json(
            kind="routing",
            quantity="routing iteration",
            values=iterations,
            notes=[self.stage_of(t) for t in iterations],
            classes=list(self.classes),
            colours=[DARK, BRIGHT],
            most=round(100 * float(shares.max())),
            side=round(parts.shape[1] ** 0.5),
            images=images,
        )


def strip(film: RoutingFilm) -> Figure:
    """Draw a row for each image and iteration: the image, and for each class a map of the shares assigned to it. The
    correct class's map has an orange edge. A row's label has the iteration, the most active class and its activation.
    """
    parts, shares = film.positions()
    rows = []
    for k, t in product(range(len(film.images)), range(film.iterations)):
        maps = [_map(parts[k], each / shares.max(), n == film.labels[k]) for n, each in enumerate(shares[k, t])]
        image = Image.fromarray(film.images[k]).convert("RGB").resize(maps[0].shape[:2], Image.Resampling.NEAREST)
        most = int(film.activations[k, t].argmax())
        label = f"iteration {t + 1}\n{film.classes[most]} {film.activations[k, t, most]:.2f}"
        rows.append((plain(label), np.stack([np.asarray(image) / 255, *maps])))
    return image_rows(rows, ["", *map(plain, film.classes)], "class")


def _map(parts: NDArray[np.float32], shares: NDArray[np.float32], right: bool) -> NDArray[np.float64]:
    """An RGB picture `[S, S, 3]` with a square for each of X positions, row by row. A square's area is proportional to
    the position's activation in `parts [X]`. Its colour shows the position's number in `shares [X]`, which is a share
    divided by the film's largest. If `right` is true (the class is correct), the picture has an orange edge.
    """
    side = round(len(parts) ** 0.5)
    pixels = max(8, _SIDE // side)  # side of the cell in which a position's square is drawn
    from_middle = np.abs(np.arange(pixels) + 0.5 - pixels / 2)
    inside = np.maximum(from_middle[:, None], from_middle) < 0.47 * pixels * np.sqrt(parts.clip(0, 1))[:, None, None]
    squares = (inside[..., None] * _SHADES(shares)[:, None, None, :3]).reshape(side, side, pixels, pixels, 3)
    picture = squares.swapaxes(1, 2).reshape(side * pixels, -1, 3)
    if right:
        for edge in (slice(_EDGE), slice(-_EDGE, None)):
            picture[edge] = picture[:, edge] = to_rgb(VERMILLION)
    return picture
