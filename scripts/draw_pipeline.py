"""Draw the stages of dvc.yaml and what flows between them: docs/pipeline.svg, for the README.

    python scripts/draw_pipeline.py

Stages are taken from dvc.yaml itself: an arrow leads from the one that writes a path to the one that reads it, and
arrows that others imply are left out. A stage and the one for sets of its studies (`<stage>_sets`) are one box.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipeline.drawing import style  # noqa: E402
from pipeline.files import write_bytes  # noqa: E402

WIDTH, HEIGHT = 1.42, 0.62
"""Size of a box, in inches."""
GAP, LINE = 0.44, 0.2
"""Between boxes, across and down, in inches."""

DOES = {
    "download": "fetch and check",
    "preprocess": "split, one file",
    "train": "all seeds",
    "evaluate": "probes, failures",
    "optimise": "at test time",
    "turn": "one digit, 360 degrees",
    "posterior": "Gaussian poses",
    "infer": "predictive coding",
    "sweep": "rotation ranges",
    "sensitivity": "hyperparameters",
    "presence_ablation": "what t0 says",
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
    "datasets": "data set",
    "runs": "run",
    "optimise": "study",
    "posterior": "study",
    "infer": "study",
    "sensitivity.hyperparameters": "setting",
    "presence_ablation": "study",
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
        read[name] = paths(body.get("deps"))
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


@style.in_house_style
def draw(stages: dict[str, Any]) -> Figure:
    """Boxes in columns, arrows between them."""
    edges = arrows(stages)
    depth = columns(stages, edges)
    tall = max(list(depth.values()).count(column) for column in depth.values())
    wide = max(depth.values()) + 1
    figure = Figure(figsize=(wide * (WIDTH + GAP), tall * (HEIGHT + LINE)), layout="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-GAP / 2, wide * (WIDTH + GAP) - GAP / 2)
    axes.set_ylim(0, tall * (HEIGHT + LINE))

    middle: dict[str, tuple[float, float]] = {}
    for column in range(wide):
        names = [name for name in stages if depth[name] == column]
        for place, name in enumerate(names):
            row = tall / 2 + (len(names) - 1) / 2 - place - 0.5
            middle[name] = column * (WIDTH + GAP) + WIDTH / 2, (row + 0.5) * (HEIGHT + LINE)
    for name, (x, y) in middle.items():
        repeated = multiplicity(stages[name]) != "once"
        for shift in (0.045, 0.0) if repeated else (0.0,):  # a second sheet behind what is repeated
            corner = x - WIDTH / 2 + shift, y - HEIGHT / 2 + shift
            box = FancyBboxPatch(
                corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.06", facecolor="#eef4f9" if repeated else
                "#fbf1ea", edgecolor=style.BLUE if repeated else style.VERMILLION, linewidth=0.9, zorder=2 - shift,
            )  # fmt: skip
            axes.add_patch(box)
        axes.text(x, y + 0.16, name, ha="center", va="center", fontsize=9, weight="bold", zorder=3)
        axes.text(x, y - 0.03, DOES.get(name, ""), ha="center", va="center", fontsize=7, zorder=3)
        axes.text(
            x, y - 0.19, multiplicity(stages[name]), ha="center", va="center", fontsize=7, color=style.FAINT, zorder=3
        )
    for a, b in sorted(edges):
        (x0, y0), (x1, y1) = middle[a], middle[b]
        behind = 0.045 if multiplicity(stages[a]) != "once" else 0.0
        slant = 0.12 * ((y0 > y1) - (y0 < y1))  # arrows that meet keep apart
        ends = (x0 + WIDTH / 2 + behind, y0 - slant), (x1 - WIDTH / 2, y1 + slant)
        look = {"arrowstyle": "-|>", "mutation_scale": 8, "linewidth": 0.9, "color": style.INK, "zorder": 1}
        axes.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=1.5, **look))
    return figure


def main() -> None:
    """Write the picture."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    shown = {name: stage for name, stage in stages.items() if not name.endswith("_sets")}
    write_bytes(ROOT / "docs" / "pipeline.svg", style.to_bytes(draw(shown), "svg"))


if __name__ == "__main__":
    main()
