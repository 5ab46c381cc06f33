"""Experiments on top-down attention and its inversion (document 001)."""

from __future__ import annotations

import typer

from stages.workspace import stage

DATASETS = {"toy": "the toy network", "iterated": "planted scenes", "density": "samples", "parsing": "planted scenes"}
"""What the numbers are about, by kind of study."""


def main(name: str) -> None:
    """Run NAME, an entry of `attention` in params.yaml: a study, or each of a set. No data are needed: scenes are
    planted.
    """
    with stage("attention", name) as workspace:
        import torch

        from pipeline.compute import prepare
        from pipeline.results.outcome import combined
        from pipeline.systems.attention.studies import run_study

        item = workspace.params.attention[name]
        prepare(torch.device("cpu"))  # special functions come from SciPy, and everything is small
        if item.study == "set":
            labels = {key: DATASETS[each.study] for key, each in item.studies.items()}
            found = {key: run_study(each, f"{workspace.label}, {key}") for key, each in item.studies.items()}
            outcome, label = combined(found, labels), ", ".join(dict.fromkeys(labels.values()))
        else:
            outcome, label = run_study(item, workspace.label), DATASETS[item.study]
        workspace.write(outcome, dataset_label=label)


if __name__ == "__main__":
    typer.run(main)
