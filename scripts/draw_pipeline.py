"""Draw the stages of dvc.yaml and what flows between them: docs/pipeline.svg, for the README.

    python scripts/draw_pipeline.py

Stages are taken from dvc.yaml itself: an arrow leads from the one that writes a path to the one that reads it, and
arrows that others imply are left out. A stage and the one for sets of its studies (`<stage>_sets`) are one box.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipeline.drawing import style  # noqa: E402
from pipeline.files import write_bytes  # noqa: E402

WIDTH, HEIGHT = 1.56, 0.68
"""Size of a box, in inches."""
GAP, LINE = 0.36, 0.18
"""Between boxes, across and down, in inches."""
SHEET = 0.045
"""What a second sheet behind a box stands out by, in inches."""
IN_A_ROW = 2
"""Boxes of a group."""
NAME: dict[str, Any] = {"fontsize": 10, "weight": "bold"}
WORDS: dict[str, Any] = {"fontsize": 8.5}
GREY = "#5f5f5f"
"""Of secondary words: still legible on a box's colour."""

DOES = {
    "download": "fetch and check",
    "own_images": "read, resize",
    "preprocess": "split, one file",
    "train": "all seeds",
    "evaluate": "probes, failures",
    "optimise": "at test time",
    "turn": "one digit, 360°",
    "posterior": "Gaussian poses",
    "infer": "predictive coding",
    "routing": "each iteration",
    "sweep": "rotation ranges",
    "sensitivity": "hyperparameters",
    "presence_ablation": "what t0 says",
    "equivariance": "one measure for all",
    "data_efficiency": "shares of images",
    "regression": "EM, capsules",
    "attention": "planted scenes",
    "ablation": "EM routing",
    "recipe": "new objects",
    "viewpoint": "familiar, novel",
    "attack": "adversarial",
    "figures": "draw",
    "tables": "scorecard, page",
}
"""What a stage does; one that is not here yet is drawn without."""


ITEMS = {
    "sources": "source",
    "own_images": "source",
    "datasets": "data set",
    "runs": "run",
    "optimise": "study",
    "posterior": "study",
    "infer": "study",
    "routing": "study",
    "sensitivity.hyperparameters": "setting",
    "presence_ablation": "study",
    "equivariance": "study",
    "data_efficiency": "study",
    "regression": "study or set",
    "attention": "study or set",
    "ablation": "study",
    "recipe": "study",
    "viewpoint": "study",
    "attack": "study",
}
"""What one entry of a section of the parameters is called."""


def paths(entries: Any) -> list[str]:
    """The paths under `deps`, `outs`, `metrics` or `plots` of a stage, options dropped."""
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries or []]


def touch(written: str, read: str) -> bool:
    """Whether one path is the other or lies in it; a templated part stands for anything."""
    pairs = zip(*(re.sub(r"\$\{[^}]*\}", "*", path).split("/") for path in (written, read)), strict=False)
    return all("*" in a or "*" in b or a == b for a, b in pairs)


def arrows(stages: dict[str, Any]) -> set[tuple[str, str]]:
    """(from, to) for every stage that reads what another writes, those that longer ways imply left out."""
    read, written = {}, {}
    for name, stage in stages.items():
        body = stage.get("do", stage)
        # A path that is all template is the user's own: no stage writes it.
        read[name] = [path for path in paths(body.get("deps")) if not path.startswith("${")]
        written[name] = [path for kind in ("outs", "metrics", "plots") for path in paths(body.get(kind))]
    direct = {
        (a, b) for a in stages for b in stages if a != b and any(touch(w, r) for w in written[a] for r in read[b])
    }
    reach = set(direct)
    for middle in stages:
        reach |= {(a, b) for a in stages for b in stages if (a, middle) in reach and (middle, b) in reach}
    return {(a, b) for a, b in direct if not any((a, c) in reach and (c, b) in reach for c in stages)}


def columns(stages: dict[str, Any], edges: set[tuple[str, str]]) -> dict[str, int]:
    """Each stage as far to the right as those that read it allow: fewest arrows pass behind boxes."""
    left = dict.fromkeys(stages, 0)  # arrows, at most, that lead on from a stage
    for _ in stages:
        for a, b in edges:
            left[a] = max(left[a], left[b] + 1)
    return {name: max(left.values()) - arrows for name, arrows in left.items()}


def multiplicity(stage: dict[str, Any]) -> str:
    """What a stage is repeated for, in words."""
    if "foreach" in stage:
        source = str(stage["foreach"]).strip("${}")
        return "each " + ITEMS.get(source, f"of {source}")
    if "matrix" in stage:
        return "each " + " and ".join(stage["matrix"])
    return "once"


def groups(stages: dict[str, Any], edges: set[tuple[str, str]]) -> list[list[str]]:
    """Stages that read from the same stages and are read by the same ones, in the order of the file."""
    found: dict[tuple[frozenset[str], frozenset[str]], list[str]] = {}
    for name in stages:
        before, after = (frozenset(edge[way] for edge in edges if edge[1 - way] == name) for way in (0, 1))
        found.setdefault((before, after), []).append(name)
    return list(found.values())


@dataclass(frozen=True)
class Place:
    """The rectangle of a group, in inches: its middle, width and height."""

    x: float
    y: float
    width: float
    height: float


def places(stages: dict[str, Any], edges: set[tuple[str, str]]) -> tuple[dict[tuple[str, ...], Place], float, float]:
    """Where each group is drawn, and the width and height of the whole."""
    depth = columns(stages, edges)
    by_column: dict[int, list[list[str]]] = {}
    for group in groups(stages, edges):
        by_column.setdefault(depth[group[0]], []).append(group)
    heights = {column: sum(_size(group)[1] + LINE for group in found) for column, found in by_column.items()}
    tall, left, found = max(heights.values()), 0.0, {}
    for column in sorted(by_column):
        wide = max(_size(group)[0] for group in by_column[column])
        top = (tall + heights[column]) / 2
        for group in by_column[column]:
            width, height = _size(group)
            found[tuple(group)] = Place(left + width / 2, top - LINE / 2 - height / 2, width, height)
            top -= height + LINE
        left += wide + GAP
    return found, left, tall


def _size(group: list[str]) -> tuple[float, float]:
    """Width and height of a group: one box, or a frame around boxes in rows of `IN_A_ROW`."""
    if len(group) == 1:
        return WIDTH, HEIGHT
    across = _across(group)
    return across * (WIDTH + LINE) + LINE, -(-len(group) // across) * (HEIGHT + LINE) + LINE


def _across(group: list[str]) -> int:
    return IN_A_ROW if len(group) > IN_A_ROW else 1


@style.in_house_style
def draw(stages: dict[str, Any]) -> Figure:
    """Boxes in columns, those with the same arrows in a frame, and the arrows between them."""
    edges = arrows(stages)
    found, wide, tall = places(stages, edges)
    figure = Figure(figsize=(wide, tall), layout="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-GAP / 2, wide - GAP / 2)
    axes.set_ylim(0, tall)
    for group, place in found.items():
        if len(group) > 1:
            corner = place.x - place.width / 2, place.y - place.height / 2
            axes.add_patch(
                FancyBboxPatch(
                    corner, place.width, place.height, boxstyle="round,pad=0,rounding_size=0.1", facecolor="none",
                    edgecolor=style.FAINT, linewidth=0.9, zorder=1,
                )
            )  # fmt: skip
        for index, name in enumerate(group):
            across = _across(list(group))
            row, column = divmod(index, across)
            x = place.x + (column - (across - 1) / 2) * (WIDTH + LINE)
            y = place.y + place.height / 2 - HEIGHT / 2 - (row * (HEIGHT + LINE) + LINE if len(group) > 1 else 0)
            _box(axes, name, stages[name], x, y)
    drawn = {(a, b) for a in found for b in found if any((c, d) in edges for c in a for d in b)}
    for a, b in sorted(drawn):
        begin, end = found[a], found[b]
        behind = SHEET if len(a) == 1 and multiplicity(stages[a[0]]) != "once" else 0.0
        slant = 0.12 * ((begin.y > end.y) - (begin.y < end.y))  # arrows that meet keep apart
        ends = (begin.x + begin.width / 2 + behind, begin.y - slant), (end.x - end.width / 2, end.y + slant)
        look = {"arrowstyle": "-|>", "mutation_scale": 8, "linewidth": 0.9, "color": style.INK, "zorder": 1}
        if any(_crosses(*ends, other) for group, other in found.items() if group not in (a, b)):
            ends = (begin.x + begin.width / 2 + behind, begin.y), (end.x, end.y - end.height / 2)
            look["connectionstyle"] = "angle,angleA=0,angleB=90,rad=6"  # to the right, then up
        axes.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=1.5, **look))
    return figure


def _crosses(start: tuple[float, float], end: tuple[float, float], place: Place) -> bool:
    """Whether a straight line passes through a rectangle, tried at a hundred points."""
    for step in range(101):
        x, y = (a + (b - a) * step / 100 for a, b in zip(start, end, strict=True))
        if abs(x - place.x) < place.width / 2 and abs(y - place.y) < place.height / 2:
            return True
    return False


def _box(axes: Axes, name: str, stage: dict[str, Any], x: float, y: float) -> None:
    """One stage, its middle at (x, y)."""
    repeated = multiplicity(stage) != "once"
    for shift in (SHEET, 0.0) if repeated else (0.0,):  # a second sheet behind what is repeated
        corner = x - WIDTH / 2 + shift, y - HEIGHT / 2 + shift
        box = FancyBboxPatch(
            corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.06", facecolor="#eef4f9" if repeated else
            "#fbf1ea", edgecolor=style.BLUE if repeated else style.VERMILLION, linewidth=0.9, zorder=2 - shift,
        )  # fmt: skip
        axes.add_patch(box)
    lines = (
        (0.18, name, NAME),
        (-0.03, DOES.get(name, ""), WORDS),
        (-0.2, multiplicity(stage), WORDS | {"color": GREY}),
    )
    for above, text, look in lines:
        axes.text(x, y + above, text, ha="center", va="center", zorder=3, **look)


def main() -> None:
    """Write the picture."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    shown = {name: stage for name, stage in stages.items() if not name.endswith("_sets")}
    write_bytes(ROOT / "docs" / "pipeline.svg", style.to_bytes(draw(shown), "svg"))


if __name__ == "__main__":
    main()
