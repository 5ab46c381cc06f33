"""One experiment on capsule regression (document 002)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(name: str) -> None:
    """Run NAME, an entry of `regression` in params.yaml, on its data set."""
    with stage("regression", name) as workspace:
        from pipeline.compute import prepare
        from pipeline.data.datasets import PARTS
        from pipeline.errors import UserError
        from pipeline.systems.regression.model.fits import checkpoints_in
        from pipeline.systems.regression.model.inputs import build_inputs
        from pipeline.systems.regression.studies import Extras, run_study

        study = workspace.params.regression[name]
        device = workspace.choose_device()
        prepare(device)
        dataset, digest = workspace.open_dataset(study.dataset)
        workspace.run.log_dataset(study.dataset, dataset.label, digest)
        inputs = build_inputs(dataset, study.features, device)
        images = {part: dataset.part(part)[0] for part in PARTS}
        common = {"data": digest, "features": study.features, "device": device.type}
        keep_at = checkpoints_in(workspace.checkpoint_folder(), workspace.own_code(), **common)
        try:
            outcome = run_study(inputs, study, Extras(images, keep_at, workspace.label))
        except ValueError as error:
            raise UserError(f"{name}: {error}") from None
        workspace.write(outcome, dataset_label=dataset.label, data_sha256=digest)


if __name__ == "__main__":
    typer.run(main)
