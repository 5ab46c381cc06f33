"""Several short studies of capsule regression as one item (document 002)."""

from __future__ import annotations

import typer

from stages.regression import run_studies
from stages.workspace import stage


def main(name: str) -> None:
    """Run all studies of NAME, an entry of `regression_sets` in params.yaml, on its data set."""
    with stage("regression_sets", name) as workspace:
        from pipeline.results.outcome import combined

        entry = workspace.params.regression_sets[name]
        outcomes, data = run_studies(workspace, entry.dataset, entry.studies)
        workspace.write(combined(outcomes), **data)


if __name__ == "__main__":
    typer.run(main)
