"""One experiment on top-down attention and its inversion (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage

DATASETS = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""What each study measures, for its provenance."""


def main(name: str) -> None:
    """Run NAME, an entry of `attention` in params.yaml. It needs no data: scenes are generated."""
    with stage("attention", name) as workspace:
        import torch

        from pipeline.compute import prepare
        from pipeline.systems.attention.studies import run_study

        study = workspace.params.attention[name]
        prepare(torch.device("cpu"))  # SciPy computes the special functions, and all arrays are small
        workspace.write(run_study(study, workspace.label), dataset_label=DATASETS[study.study])


if __name__ == "__main__":
    typer.run(main)
