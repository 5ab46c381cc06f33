"""Several short studies of top-down attention as one item (document 001)."""

from __future__ import annotations

import typer

from stages.attention import DATASETS, run_studies
from stages.workspace import stage


def main(name: str) -> None:
    """Run all studies of NAME, an entry of `attention_sets` in params.yaml. They need no data: scenes are generated."""
    with stage("attention_sets", name) as workspace:
        from pipeline.results.outcome import combined

        studies = workspace.params.attention_sets[name].studies
        labels = {key: DATASETS[study.study] for key, study in studies.items()}
        outcome = combined(run_studies(workspace, studies), labels)
        workspace.write(outcome, dataset_label=", ".join(dict.fromkeys(labels.values())))


if __name__ == "__main__":
    typer.run(main)
