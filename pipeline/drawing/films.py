"""Films, which a page shows one picture at a time, by a slider: an image turned, and what a model finds in it; or
routing iteration by iteration, which can be a strip of pictures, too.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from pipeline.drawing.style import FAINT, INK, WIDTH, in_house_style, plain

_COLOURS = 128
_MOST_SQUARES = 64
"""Parts drawn one by one: of more, a position is drawn as one square."""
DARK, BRIGHT = "#1b2a41", "#ffd23f"
"""Of a part that gives a class nothing, and of one that gives it the largest share of all: they differ in lightness."""
BETWEEN = "#7a7a7a"
"""Lines between positions that have several types of parts."""
_SHADES = LinearSegmentedColormap.from_list("shares", [DARK, BRIGHT])


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


@dataclass(frozen=True)
class RoutingFilm:
    """The class capsules of K images in each of T iterations, n classes, c types of parts at X positions.

    Attributes:
        classes: names.
        used: iterations that the network itself runs.
        images: `[K, S, S]`, uint8; labels: `[K]`.
        parts: activations, `[K, X, c]`.
        shares: `[K, T, n, X, c]`.
        activations, spreads: of the classes, and of the votes for them, `[K, T, n]`.
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
        """T."""
        return int(self.shares.shape[1])

    def name_of(self, image: int) -> str:
        """Class of an image, and what the network takes it for after its own iterations if that is another one."""
        label, taken = int(self.labels[image]), int(self.activations[image, self.used - 1].argmax())
        return self.classes[label] + ("" if taken == label else f", taken for {self.classes[taken]}")

    def stage_of(self, iteration: int) -> str:
        """What an iteration, counted from 1, shows: which update of the shares, and whether the network runs it."""
        update = f"after update {iteration - 1}" if iteration > 1 else "equal shares"
        if iteration == self.used:
            return f"{update}, the network's last"
        return update if iteration < self.used else f"{update}, beyond the network's"

    @property
    def one_by_one(self) -> bool:
        """Whether a square is a part, and not a position."""
        return self.parts[0].size <= _MOST_SQUARES

    def squares(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What is drawn as a square: activations `[K, X, c]` and shares `[K, T, n, X, c]`; of many parts, positions.

        A position is as active as its parts are on average, and gives what they give together.
        """
        if self.one_by_one:
            return self.parts, self.shares
        together = self.parts.sum(-1, keepdims=True)  # (K, X, 1)
        given = (self.shares * self.parts[:, None, None]).sum(-1, keepdims=True)
        return together / self.parts.shape[-1], given / np.maximum(together, 1e-9)[:, None, None]

    def to_json(self) -> str:
        """All of it, shares as percentages."""
        parts, shares = self.squares()
        content: dict[str, Any] = {
            "kind": "routing",
            "quantity": "routing iteration",
            "values": list(range(1, self.iterations + 1)),
            "notes": [self.stage_of(t) for t in range(1, self.iterations + 1)],
            "classes": list(self.classes),
            "colours": [DARK, BRIGHT],
            "between": BETWEEN,
            "most": round(100 * float(shares.max())),
            "side": round(parts.shape[1] ** 0.5),
            "images": [
                {
                    "name": self.name_of(k),
                    "label": int(self.labels[k]),
                    "picture": png(Image.fromarray(self.images[k])),
                    "parts": rounded(parts[k]),
                    "shares": np.round(100 * shares[k].reshape(*shares.shape[1:3], -1)).astype(int).tolist(),
                    "activations": rounded(self.activations[k]),
                    "spreads": rounded(self.spreads[k]),
                }
                for k in range(len(self.images))
            ],
        }
        return json.dumps(content, separators=(",", ":"), allow_nan=False)


@in_house_style
def strip(film: RoutingFilm) -> Figure:
    """A row for each image and iteration, a column for each class; the image itself on the left."""
    parts, shares = film.squares()
    classes, T = len(film.classes), film.iterations
    rows = len(film.images) * T
    side = min(WIDTH / (classes + 1.35), 0.85)
    figure = Figure(figsize=((classes + 1.35) * side, (side + 0.19) * rows + 0.25))
    grid = figure.subplots(rows, classes + 1, squeeze=False)
    for k, image in enumerate(film.images):
        for t in range(T):
            first, *others = grid[k * T + t]
            _bare(first)
            if t == 0:
                first.imshow(image, cmap="gray", vmin=0, vmax=255)
                first.set_title(plain(film.name_of(k).replace(", taken", ",\ntaken")), fontsize=6)
            else:
                first.set_visible(False)
            for n, axes in enumerate(others):
                _bare(axes)
                _draw_squares(axes, parts[k], shares[k, t, n] / shares.max())
                right = n == film.labels[k]
                if t == 0:
                    name = plain(film.classes[n])
                    axes.set_title(name, fontsize=6.5, fontweight="bold" if right else "normal", loc="center")
                axes.spines[:].set_visible(True)
                axes.spines[:].set_color(INK if right else FAINT)
                axes.spines[:].set_linewidth(1.6 if right else 0.5)
                words = f"{film.activations[k, t, n]:.2f}; {film.spreads[k, t, n]:.2f}"
                axes.set_xlabel(words, fontsize=6, labelpad=2)
            others[0].set_ylabel(f"iteration {t + 1}", fontsize=6, labelpad=2)
    return figure


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _draw_squares(axes: Axes, parts: NDArray[np.float32], shares: NDArray[np.float32]) -> None:
    """A square for each part, where it lies: positions row by row, types row by row in each."""
    side = round(len(parts) ** 0.5)
    across = int(np.ceil(parts.shape[1] ** 0.5))
    axes.set_xlim(0, side)
    axes.set_ylim(side, 0)
    axes.set_aspect("equal")
    axes.set_facecolor("black")
    for edge in range(1, side if across > 1 else 1):
        axes.axhline(edge, color=BETWEEN, linewidth=0.4)
        axes.axvline(edge, color=BETWEEN, linewidth=0.4)
    for (x, c), active in np.ndenumerate(parts):
        size = float(np.sqrt(np.clip(active, 0, 1))) * 0.94 / across
        left = x % side + (c % across + 0.5) / across - size / 2
        top = x // side + (c // across + 0.5) / across - size / 2
        axes.add_patch(Rectangle((left, top), size, size, facecolor=_SHADES(float(shares[x, c])), linewidth=0))
