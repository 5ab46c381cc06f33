"""One digit turned through 360 degrees, encoded by a trained run at each step."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Turn a digit for the run of STUDY, an entry of `optimise` in params.yaml."""
    with stage("turn", study) as workspace:
        from pipeline.systems.generative.model.generative_model import GenerativeModel
        from pipeline.systems.generative.studies.turning import outcome

        name = workspace.params.optimise[study].run
        run = workspace.params.runs[name]
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(run.dataset)
        workspace.run.log_dataset(run.dataset, dataset.label, digest)
        models = workspace.trained_models(name, GenerativeModel, dataset.images.shape[-1], device)
        result = outcome(models, dataset, device)
        workspace.write(result, dataset_label=dataset.label, data_sha256=digest, seeds=run.seeds)


if __name__ == "__main__":
    typer.run(main)
