"""Experiments on capsule regression (document 002)."""

from __future__ import annotations

from functools import cache

import typer

from stages.workspace import stage

STUDIES = "pipeline/systems/regression/studies"


def main(name: str) -> None:
    """Run NAME, an entry of `regression` in params.yaml, on its data set: a study, or each of a set."""
    with stage("regression", name) as workspace:
        from pipeline.compute import prepare
        from pipeline.data.datasets import PARTS
        from pipeline.errors import UserError
        from pipeline.results.outcome import Outcome, combined
        from pipeline.systems.regression.model.fits import checkpoints_in
        from pipeline.systems.regression.model.inputs import Inputs, build_inputs
        from pipeline.systems.regression.settings import RegressionStudy
        from pipeline.systems.regression.studies import Extras, run_study

        item = workspace.params.regression[name]
        device = workspace.choose_device()
        prepare(device)
        dataset, digest = workspace.open_dataset(item.dataset)
        workspace.run.log_dataset(item.dataset, dataset.label, digest)
        images = {part: dataset.part(part)[0] for part in PARTS}

        @cache
        def inputs(features: int) -> Inputs:
            return build_inputs(dataset, features, device)

        def run(study: RegressionStudy, own_name: str, title: str) -> Outcome:
            # Fits are kept by the code of their own study, so that an edit of one repeats no other's in a set.
            code = workspace.own_code(STUDIES, "__init__.py", f"{study.study}.py")
            common = {"data": digest, "features": study.features, "device": device.type}
            keep_at = checkpoints_in(workspace.checkpoint_folder(), code, **common)
            try:
                return run_study(inputs(study.features), study, Extras(images, keep_at, title))
            except ValueError as error:
                raise UserError(f"{own_name}: {error}") from None

        if item.study == "set":
            outcome = combined({key: run(each, key, f"{workspace.label}, {key}") for key, each in item.studies.items()})
        else:
            outcome = run(item, name, workspace.label)
        workspace.write(outcome, dataset_label=dataset.label, data_sha256=digest)


if __name__ == "__main__":
    typer.run(main)
