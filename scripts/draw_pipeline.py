"""Draw the stages of dvc.yaml, and arrows for the data between them, into docs/pipeline.svg for the README.

    python scripts/draw_pipeline.py

An arrow leads from a stage that writes a path to a stage that reads the path. It is left out if other arrows connect
the two stages through a third one. Stages `<stage>_sets` are not drawn: the box of `<stage>` stands for both.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Line

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipeline.drawing import style  # noqa: E402
from pipeline.files import write_bytes  # noqa: E402

WIDTH, HEIGHT = 1.64, 0.74
"""Size of a box, in inches."""
GAP, LINE = 0.8, 0.18
"""Inches between columns (half of it between lines), and between the boxes of a group or groups of a column."""
EDGE = 0.1
"""Margin around the picture, in inches."""
SHEET = 0.045
"""Inches by which a second sheet behind a box is shifted to the right and upwards."""
IN_A_ROW = 4
"""Maximum number of boxes in a row of a group."""
NAME: dict[str, Any] = {"fontsize": 10.5, "weight": "bold"}
WORDS: dict[str, Any] = {"fontsize": 9.5}
GREY = "#5f5f5f"
"""Colour of secondary words. It is still legible on the colours of boxes."""

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
    "presence_ablation": "which settings",
    "equivariance": "one measure for all",
    "data_efficiency": "shares of images",
    "regression": "EM, capsules",
    "attention": "generated scenes",
    "ablation": "EM routing",
    "recipe": "new objects",
    "viewpoint": "novel viewpoints",
    "attack": "adversarial",
    "figures": "draw all",
    "tables": "scorecard, page",
}
"""What each stage does. A stage that is not in this dict is drawn without words."""

FLOWS = {
    "download": "raw data",
    "preprocess": "data sets",
    "train": "weights",
    "evaluate": "results",
    "regression": "results",
    "attention": "results",
    "figures": "figures",
}
"""What is written beside an arrow, by the first stage of the group that the arrow begins at."""

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
"""What an item of a stage is called, by the section of `params.yaml` that lists the items."""


def paths(entries: Any) -> list[str]:
    """The paths in `entries`, a stage's list `deps`, `outs`, `metrics` or `plots`, without their options."""
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries or []]


def touch(written: str, read: str) -> bool:
    """Whether two paths are equal, or one is inside the other. A name with a template `${...}` matches every name."""
    pairs = zip(*(re.sub(r"\$\{[^}]*\}", "*", path).split("/") for path in (written, read)), strict=False)
    return all("*" in a or "*" in b or a == b for a, b in pairs)


def arrows(stages: dict[str, Any]) -> set[tuple[str, str]]:
    """Pairs (a, b): b reads a path that a writes, and other arrows do not lead from a to b through a third stage."""
    read, written = {}, {}
    for name, stage in stages.items():
        body = stage.get("do", stage)
        # A path that begins with a template is a folder of the user's. No stage writes it.
        read[name] = [path for path in paths(body.get("deps")) if not path.startswith("${")]
        written[name] = [path for kind in ("outs", "metrics", "plots") for path in paths(body.get(kind))]
    direct = [
        (a, b) for a in stages for b in stages if a != b and any(touch(w, r) for w in written[a] for r in read[b])
    ]
    return set(nx.transitive_reduction(nx.DiGraph(direct)).edges)


def columns(stages: dict[str, Any], edges: set[tuple[str, str]]) -> dict[str, int]:
    """The column of each stage, from 0: just left of all stages that read from it, so that few arrows cross boxes."""
    backwards = nx.DiGraph([(b, a) for a, b in edges])
    backwards.add_nodes_from(stages)
    from_right = list(nx.topological_generations(backwards))
    return {name: len(from_right) - 1 - number for number, names in enumerate(from_right) for name in names}


def multiplicity(stage: dict[str, Any]) -> str:
    """What a stage runs for, in words: "once", or "each" with the name of an item, such as "each run"."""
    if "foreach" in stage:
        source = str(stage["foreach"]).strip("${}")
        return "each " + ITEMS.get(source, f"of {source}")
    if "matrix" in stage:
        return "each " + " and ".join(stage["matrix"])
    return "once"


def groups(stages: dict[str, Any], edges: set[tuple[str, str]]) -> list[list[str]]:
    """Groups of stages. Stages of a group read from the same stages and are read by the same stages. In file order."""
    found: dict[tuple[frozenset[str], frozenset[str]], list[str]] = {}
    for name in stages:
        before, after = (frozenset(edge[way] for edge in edges if edge[1 - way] == name) for way in (0, 1))
        found.setdefault((before, after), []).append(name)
    return list(found.values())


@dataclass(frozen=True)
class Place:
    """The rectangle of a group in inches: middle (y up), width and height. `line` is its line from the top, from 0."""

    x: float
    y: float
    width: float
    height: float
    line: int

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        return self.y - self.height / 2


def lines(stages: dict[str, Any], edges: set[tuple[str, str]]) -> list[list[list[list[str]]]]:
    """The layout: lines from top to bottom, each with columns from left to right, each with groups from top to bottom.

    A step has the groups with the same number in `columns`. Successive steps with one group are columns of one line.
    A step with several groups is a line: its first column has all single stages, each further column has one group.
    """
    depth = columns(stages, edges)
    steps: dict[int, list[list[str]]] = {}
    for group in groups(stages, edges):
        steps.setdefault(depth[group[0]], []).append(group)
    found: list[list[list[list[str]]]] = [[]]
    for _, step in sorted(steps.items()):
        if len(step) == 1:
            found[-1].append(step)
        else:
            single = [group for group in step if len(group) == 1]
            found += [[single, *([group] for group in step if len(group) > 1)], []]
    return [line for line in found if line]


def places(stages: dict[str, Any], edges: set[tuple[str, str]]) -> tuple[dict[tuple[str, ...], Place], float, float]:
    """The place of each group, and the width and height of the picture in inches."""
    found, y, wide, begin = {}, 0.0, 0.0, EDGE
    for number, line in enumerate(lines(stages, edges)):
        tall = max(sum(_size(group)[1] + LINE for group in column) - LINE for column in line)
        x = begin
        for column in line:
            across, top = max(_size(group)[0] for group in column), y
            if len(column) == 1:  # centred in the line's height
                top -= (tall - _size(column[0])[1]) / 2
            for group in column:
                width, height = _size(group)
                found[tuple(group)] = Place(x + across / 2, top - height / 2, width, height, number)
                top -= height + LINE
            x += across + GAP
            if len(line[0]) > 1 and column is line[0]:
                begin = x  # later lines begin at this line's second column
        wide = max(wide, x - GAP)
        y -= tall + GAP / 2
    high = EDGE - y - GAP / 2
    moved = {group: replace(place, y=place.y + high) for group, place in found.items()}
    return moved, wide + EDGE + SHEET, high + EDGE


def _size(group: list[str]) -> tuple[float, float]:
    """Width and height of a group in inches: of a box, or of a frame around rows of at most `IN_A_ROW` boxes."""
    if len(group) == 1:
        return WIDTH, HEIGHT
    across = min(len(group), IN_A_ROW)
    return across * (WIDTH + LINE) + LINE, -(-len(group) // across) * (HEIGHT + LINE) + LINE


@style.in_house_style
def draw(stages: dict[str, Any]) -> Figure:
    """Draw a box for each stage, a frame around each group of several stages, and arrows between groups."""
    edges = arrows(stages)
    found, wide, tall = places(stages, edges)
    figure = Figure(figsize=(wide, tall), layout="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(0, tall)
    for group, place in found.items():
        if len(group) > 1:
            axes.add_patch(
                FancyBboxPatch(
                    (place.left, place.bottom), place.width, place.height, boxstyle="round,pad=0,rounding_size=0.1",
                    facecolor="none", edgecolor=style.FAINT, linewidth=0.9, zorder=1,
                )
            )  # fmt: skip
        for index, name in enumerate(group):
            across = min(len(group), IN_A_ROW)
            row, column = divmod(index, across)
            x = place.x + (column - (across - 1) / 2) * (WIDTH + LINE)
            y = place.top - HEIGHT / 2 - (row * (HEIGHT + LINE) + LINE if len(group) > 1 else 0)
            _box(axes, name, stages[name], x, y)
    for a, b in ((a, b) for a in found for b in found if any((c, d) in edges for c in a for d in b)):
        behind = SHEET if len(a) == 1 and multiplicity(stages[a[0]]) != "once" else 0.0
        _arrow(axes, found[a], found[b], behind, FLOWS.get(a[0], ""))
    return figure


def _arrow(axes: Axes, a: Place, b: Place, behind: float, words: str) -> None:
    """Draw an arrow from group `a` to group `b`, of horizontal and vertical lines.

    Args:
        behind: inches by which the second sheet of `a` stands out at the right; 0 if `a` has none.
        words: text beside the arrow.
    """
    if a.line == b.line:  # to the right
        way = [(a.right + behind, a.y), (b.left, a.y)]
        at, look = ((way[0][0] + b.left) / 2, a.y + 0.05), {"ha": "center", "va": "bottom"}
    elif b.left < a.x < b.right or a.left < b.x < a.right:  # straight down
        x = a.x if b.left < a.x < b.right else b.x
        way = [(x, a.bottom), (x, b.top)]
        at, look = (x + 0.06, (a.bottom + b.top) / 2), {"ha": "left", "va": "center"}
    elif a.x > b.x:  # down, back to the left, down
        y = (a.bottom + b.top + SHEET) / 2
        way = [(a.x, a.bottom), (a.x, y), (b.x, y), (b.x, b.top + SHEET)]
        at, look = (a.x + 0.06, (a.bottom + y) / 2), {"ha": "left", "va": "center"}
    else:  # to the right, down in the gap, to the right
        x = a.right + GAP / 2
        way = [(a.right + behind, a.y), (x, a.y), (x, b.y), (b.left, b.y)]
        at, look = (x - 0.06, b.y + HEIGHT / 2), {"ha": "right", "va": "center"}
    if any(text.get_position() == at for text in axes.texts):  # the words are there: it joins an earlier arrow at a dot
        axes.plot(*zip(*way[:2], strict=True), "o-", markevery=[1], color=style.INK, linewidth=1.4, zorder=1)
        return
    axes.add_patch(
        FancyArrowPatch(
            path=Line(way), arrowstyle="-|>", mutation_scale=15, linewidth=1.4, color=style.INK, zorder=1,
            joinstyle="round",
        )
    )  # fmt: skip
    axes.text(*at, words, color=GREY, zorder=3, **WORDS, **look)


def _box(axes: Axes, name: str, stage: dict[str, Any], x: float, y: float) -> None:
    """Draw the box of a stage with its middle at (x, y), in inches."""
    repeated = multiplicity(stage) != "once"
    for shift in (SHEET, 0.0) if repeated else (0.0,):  # a stage with several items has a second sheet
        corner = x - WIDTH / 2 + shift, y - HEIGHT / 2 + shift
        box = FancyBboxPatch(
            corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.06", facecolor="#eef4f9" if repeated else
            "#fbf1ea", edgecolor=style.BLUE if repeated else style.VERMILLION, linewidth=0.9, zorder=2 - shift,
        )  # fmt: skip
        axes.add_patch(box)
    lines = (
        (0.2, name, NAME),
        (-0.02, DOES.get(name, ""), WORDS),
        (-0.21, multiplicity(stage), WORDS | {"color": GREY}),
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
