"""Settings for made-up results: what the stages would have recorded under some parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from records import dump_record, load_record

from pipeline.classification.settings import CroppedRun
from pipeline.classification.viewpoint_matching import viewed
from pipeline.dependencies import Graph, GraphError
from pipeline.params import Params
from pipeline.probes.sweep import swept
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.matrix_capsules.studies.ablation import ablated

STAGES = yaml.safe_load((Path(__file__).parents[2] / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def recorded(results: Results, params: Params) -> Results:
    """The same results, every record with the settings that its item has under these parameters, and their evidence.

    Records of items that the parameters do not have stay as they are.
    """
    values = params.model_dump(mode="json")
    # Angles are named as params.yaml writes them: 45, not 45.0.
    angles = [round(angle) if angle == round(angle) else angle for angle in params.sweep.angles]
    names = {**values, "sweep": {**values["sweep"], "angles": angles}}
    graph = Graph(STAGES, names)
    for path in results.records.glob("*/*.json"):
        content = load_record(path)
        try:
            settings = graph.settings(path.parent.name, path.stem, values)
        except GraphError:
            continue
        last = content["provenance"][-1]
        last |= {"settings": settings, "trained": _trained(params, path.parent.name, path.stem)}
        dump_record(path, content)
    return replace(results, evidence=params.evidence)


def _trained(params: Params, stage: str, item: str) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    if stage == "sweep":
        name, _, angle = item.rpartition("-")
        runs = {"run": swept(params.runs[name], float(angle), params.sweep)}
    elif stage == "ablation":
        study = params.ablation[item]
        run = params.runs[study.run]
        assert isinstance(run, MatrixCapsulesRun)
        runs = {condition: ablated(run, study, condition) for condition in study.conditions}
    elif stage == "recipe":
        recipe = params.recipe[item]
        base = params.runs[recipe.run]
        assert isinstance(base, CroppedRun)
        runs = {condition: recipe.changed(base, condition) for condition in recipe.conditions}
    elif stage == "viewpoint":
        views = params.viewpoint[item]
        runs = {name: viewed(params.runs[getattr(views, name)], views) for name in ("capsules", "cnn")}
    return {name: run.model_dump(mode="json") for name, run in runs.items()}
