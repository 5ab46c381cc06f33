"""Experiments on top-down attention and its inversion (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage

DATASETS = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""What each kind of study measures, for its provenance."""


def main(name: str) -> None:
    """Run NAME, an entry of `attention` in params.yaml: a study, or each of a set. It needs no data: scenes are
    generated.
    """
    with stage("attention", name) as workspace:
        import torch

        from pipeline.compute import prepare
        from pipeline.results.outcome import combined
        from pipeline.systems.attention.studies import run_study

        item = workspace.params.attention[name]
        prepare(torch.device("cpu"))  # SciPy computes the special functions, and all arrays are small
        if item.study == "set":
            labels = {key: DATASETS[each.study] for key, each in item.studies.items()}
            found = {key: run_study(each, f"{workspace.label}, {key}") for key, each in item.studies.items()}
            outcome, label = combined(found, labels), ", ".join(dict.fromkeys(labels.values()))
        else:
            outcome, label = run_study(item, workspace.label), DATASETS[item.study]
        workspace.write(outcome, dataset_label=label)


if __name__ == "__main__":
    typer.run(main)
