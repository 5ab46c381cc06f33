"""One study of top-down attention and its inversion (document 001)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from stages.workspace import Workspace, stage

if TYPE_CHECKING:
    from pipeline.results.outcome import Outcome
    from pipeline.systems.attention.settings import AttentionStudy

DATASETS = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""What each kind of study measures, for its provenance."""


def main(name: str) -> None:
    """Run NAME, an entry of `attention` in params.yaml. It needs no data: scenes are generated."""
    with stage("attention", name) as workspace:
        study = workspace.params.attention[name]
        outcomes = run_studies(workspace, {name: study})
        workspace.write(outcomes[name], dataset_label=DATASETS[study.study])


def run_studies(workspace: Workspace, studies: Mapping[str, AttentionStudy]) -> dict[str, Outcome]:
    """Run studies one after the other; their outcomes by name."""
    import torch

    from pipeline.compute import prepare
    from pipeline.systems.attention.studies import run_study

    prepare(torch.device("cpu"))  # SciPy computes the special functions, and all arrays are small
    return {
        name: run_study(study, workspace.label if name == workspace.item else f"{workspace.label}, {name}")
        for name, study in studies.items()
    }


if __name__ == "__main__":
    typer.run(main)
