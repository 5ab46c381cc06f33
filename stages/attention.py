"""One experiment on top-down attention and its inversion (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage

DATASETS = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""What the numbers speak of, by study."""


def main(name: str) -> None:
    """Run NAME, an entry of `attention` in params.yaml. It needs no data: scenes are planted."""
    with stage("attention", name) as workspace:
        from collections.abc import Iterable
        from typing import Any

        import torch
        from tqdm import tqdm

        from pipeline.attention import toy
        from pipeline.attention.studies import density, iterated, parsing
        from pipeline.compute import prepare
        from pipeline.params import DensityStudy, IteratedStudy, ToyStudy

        study = workspace.params.attention[name]
        prepare(torch.device("cpu"))  # special functions come from SciPy, and everything is small

        def bar(items: Iterable[Any]) -> Iterable[Any]:
            return tqdm(list(items), desc=workspace.label, unit="setting")

        match study:
            case ToyStudy():
                outcome = toy.run(study.weights, study.rate, study.steps)
            case IteratedStudy():
                outcome = iterated.run(study)
            case DensityStudy():
                outcome = density.run(study)
            case _:
                outcome = parsing.run(study, bar)

        provenance = workspace.provenance(dataset_label=DATASETS[study.study])
        workspace.write_outcome(outcome, study.study, provenance)


if __name__ == "__main__":
    typer.run(main)
